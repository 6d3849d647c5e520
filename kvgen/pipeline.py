"""The story on one screen: read, parse, check. Returns values, prints nothing."""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.diagnostics import Diagnostic, Label, Problems
from kvgen.ir import Program
from kvgen.source import SourceFile, Span
from kvgen.syntax import File


@dataclass(frozen=True, slots=True)
class Checked:
    """One file: its syntax as far as it could be read; its program, None when a diagnostic is an error."""

    source: SourceFile
    syntax: File
    program: Program | None
    diagnostics: tuple[Diagnostic, ...]


def check_text(text: str, file_name: str) -> Checked:
    """Text to IR. All problems are reported, in the order of their places; warnings leave the program."""
    from kvgen.fmt import Formatted, format_file
    from kvgen.parse import parse
    from kvgen.semantics import analyse

    source = SourceFile.of(text, file_name)
    syntax, unread = parse(source)
    formatted = Formatted("", {}) if unread else format_file(source, syntax)
    program, problems = analyse(source, syntax, formatted)
    found = tuple(sorted(unread + problems, key=lambda one: (one.primary.span, one.code)))
    broken = any(one.is_error for one in found)
    return Checked(source, syntax, None if broken else program, found)


def check_bytes(data: bytes, file_name: str) -> Checked:
    """The same for a file as it lies on disk: bytes that are not UTF-8 are a diagnostic too."""
    try:
        return check_text(data.decode("utf-8"), file_name)
    except UnicodeDecodeError as error:
        return _not_utf8(data, file_name, error.start)


def _not_utf8(data: bytes, file_name: str, at: int) -> Checked:
    source = SourceFile.of(data.decode("utf-8", "replace"), file_name)
    start = len(data[:at].decode("utf-8").removeprefix("\ufeff"))
    problems = Problems(source)
    problems.add(
        "KV100",
        "the file is not UTF-8",
        Label(Span(start, start + 1), f"byte 0x{data[at]:02x} is not valid here"),
        "save the file as UTF-8",
    )
    empty = File(None, Span(0, 0), (), ())
    return Checked(source, empty, None, tuple(problems.found))
