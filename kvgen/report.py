"""Diagnostics to text, in four formats. Returns the text; the caller prints it, and says whether in colour."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from kvgen.diagnostics import Diagnostic, Edit, Label, Severity
from kvgen.excerpt import excerpt
from kvgen.source import Span

SHOWN = 100  # problems that a text report prints; it counts the rest

_BOLD, _RED, _YELLOW, _BLUE, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[34m", "\x1b[0m"
_SEVERITY_COLOUR = {Severity.ERROR: _BOLD + _RED, Severity.WARNING: _BOLD + _YELLOW}


def render(diagnostics: Sequence[Diagnostic], style: str = "full", colour: bool = False) -> str:
    """All of them in the style `full`, `concise`, `json` or `github`; empty text where a style has nothing to say."""
    return _STYLES[style](diagnostics, colour)


# -- For people


def _full(diagnostics: Sequence[Diagnostic], colour: bool) -> str:
    blocks = [_block(one, colour) + "\n" for one in diagnostics[:SHOWN]]
    return "\n".join(blocks) + _tail(diagnostics, "\n")


def _block(one: Diagnostic, colour: bool) -> str:
    paint = _painter(colour)
    main = _SEVERITY_COLOUR[one.severity]
    line, column = one.place
    shown = excerpt(one.source, one.primary, one.secondary)
    margin = " " * shown.margin
    lines = [
        paint(main, f"{one.severity.value}[{one.code}]") + paint(_BOLD, f": {one.message}"),
        f"{margin}{paint(_BLUE, '-->')} {_name(one)}:{line}:{column}",
        f"{margin} {paint(_BLUE, '|')}",
    ]
    for row in shown.rows:
        number = f"{row.number:>{shown.margin}}" if row.number else margin
        text = paint(main if row.primary else _BLUE, row.text) if row.is_mark else row.text
        lines.append(f"{paint(_BLUE, number + ' |')} {text}".rstrip())
    lines.append(f"{margin} {paint(_BLUE, '|')}")
    lines.append(f"{margin} {paint(_BLUE, '=')} {paint(_BOLD, 'help')}: {one.help}")
    lines.append(f"{margin} {paint(_BLUE, '=')} {paint(_BOLD, 'more')}: kvgen explain {one.code}")
    return "\n".join(lines)


def _painter(colour: bool) -> Callable[[str, str], str]:
    return lambda how, text: f"{how}{text}{_RESET}" if colour and text else text


def _concise(diagnostics: Sequence[Diagnostic], colour: bool) -> str:
    paint = _painter(colour)
    lines: list[str] = []
    for one in diagnostics[:SHOWN]:
        line, column = one.place
        word = paint(_SEVERITY_COLOUR[one.severity], f"{one.severity.value}[{one.code}]")
        lines.append(f"{_name(one)}:{line}:{column}: {word}: {one.message}; {one.help}\n")
    return "".join(lines) + _tail(diagnostics, "")


def _tail(diagnostics: Sequence[Diagnostic], before: str) -> str:
    more = len(diagnostics) - SHOWN
    if more <= 0:
        return ""
    errors = sum(one.is_error for one in diagnostics[SHOWN:])
    return f"{before}and {more} more: {_counted(errors, more - errors)}\n"


def _counted(errors: int, warnings: int) -> str:
    parts = ((errors, "error"), (warnings, "warning"))
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in parts if n)


def _name(one: Diagnostic) -> str:
    """The file's name, which may hold what would break a line."""
    return "".join(c if c.isprintable() else "?" for c in one.source.name)


# -- For programs


def _json(diagnostics: Sequence[Diagnostic], colour: bool) -> str:
    """One array, a problem a line; offsets count characters after a byte order mark, lines and columns count from 1."""
    records = ",\n".join(json.dumps(_record(one)) for one in diagnostics)
    return f"[\n{records}\n]\n" if records else "[]\n"


def _record(one: Diagnostic) -> dict[str, object]:
    fix = None if one.fix is None else {"edits": [_edit(one, edit) for edit in one.edits]}
    return {
        "code": one.code,
        "severity": one.severity.value,
        "message": one.message,
        "file": one.source.name,
        **_label(one, one.primary),
        "help": one.help,
        "secondary": [_label(one, label) for label in one.secondary],
        "fix": fix,
    }


def _label(one: Diagnostic, label: Label) -> dict[str, object]:
    return {**_where(one, label.span), "text": label.text}


def _edit(one: Diagnostic, edit: Edit) -> dict[str, object]:
    return {**_where(one, edit.span), "replacement": edit.replacement}


def _where(one: Diagnostic, span: Span) -> dict[str, object]:
    start, end = one.source.place(span.start), one.source.place(span.end)
    return {
        "line": start.line,
        "column": start.column,
        "end_line": end.line,
        "end_column": end.column,
        "start": span.start,
        "end": span.end,
    }


def _github(diagnostics: Sequence[Diagnostic], colour: bool) -> str:
    """Workflow commands: annotations on the lines of a pull request."""
    return "".join(_annotation(one) + "\n" for one in diagnostics)


def _annotation(one: Diagnostic) -> str:
    start, end = one.place, one.source.place(one.primary.span.end)
    ends = f",endColumn={end.column}" if end.line == start.line else ""
    message = _escaped(f"{one.message}: {one.primary.text}. {one.help}")
    name = _escaped(one.source.name).replace(":", "%3A").replace(",", "%2C")
    where = f"file={name},line={start.line},endLine={end.line},col={start.column}{ends}"
    return f"::{one.severity.value} {where},title={one.code}::{message}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


_STYLES: dict[str, Callable[[Sequence[Diagnostic], bool], str]] = {
    "full": _full,
    "concise": _concise,
    "json": _json,
    "github": _github,
}
