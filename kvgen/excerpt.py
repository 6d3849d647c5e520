"""The lines of a file that a diagnostic is about, with marks under its places."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvgen.diagnostics import Label
from kvgen.source import SourceFile

_WIDEST = 100  # of a long line, no more is shown


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the file (`number` above 0), a gap, or the mark and words below a line."""

    text: str
    number: int = 0
    is_mark: bool = False
    primary: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    rows: tuple[Row, ...]
    margin: int  # the width of the line numbers


@dataclass(frozen=True, slots=True)
class _Mark:
    """`start` and `end` are characters of one line."""

    line: int
    start: int
    end: int
    text: str
    primary: bool


def excerpt(source: SourceFile, primary: Label, secondary: Iterable[Label]) -> Excerpt:
    marks = [_mark(source, primary, True), *(_mark(source, label, False) for label in secondary)]
    lines = sorted({mark.line for mark in marks})
    margin = max(2, len(str(lines[-1])))
    return Excerpt(tuple(_rows(source, lines, marks)), margin)


def _mark(source: SourceFile, label: Label, primary: bool) -> _Mark:
    """A place that goes on over the end of its line is marked up to there."""
    line, column = source.place(label.span.start)
    start = column - 1
    end = min(start + label.span.end - label.span.start, len(source.line(line)))
    return _Mark(line, start, max(end, start + 1), label.text, primary)


def _rows(source: SourceFile, lines: list[int], marks: list[_Mark]) -> Iterator[Row]:
    previous = lines[0]
    for number in lines:
        if number > previous + 1:
            yield Row("...")
        previous = number
        here = [mark for mark in marks if mark.line == number]
        yield from _line_rows(source.line(number), number, here)


def _line_rows(text: str, number: int, marks: list[_Mark]) -> Iterator[Row]:
    first, last = _window(text, marks)
    before, after = "..." if first else "", "..." if last < len(text) else ""
    yield Row(before + _plain(text[first:last]) + after, number)
    for mark in sorted(marks, key=lambda mark: (mark.start, mark.primary)):
        lead = len(before) + _columns(text[first : mark.start])
        length = max(1, _columns(text[mark.start : min(mark.end, last)]))
        sign = "^" if mark.primary else "-"
        yield Row(" " * lead + sign * length + " " + mark.text, 0, True, mark.primary)


def _window(text: str, marks: list[_Mark]) -> tuple[int, int]:
    """The part of a long line that shows its primary mark, or its first one."""
    if len(text) <= _WIDEST:
        return 0, len(text)
    centre = next((mark for mark in marks if mark.primary), marks[0])
    first = max(0, centre.start - _WIDEST // 2)
    return first, min(len(text), first + _WIDEST)


def _plain(text: str) -> str:
    """The text with everything in it that would move the cursor replaced, character by character."""
    return "".join(" " if c == "\t" else c if c.isprintable() else "\ufffd" for c in text)


def _columns(text: str) -> int:
    """How many columns a terminal takes for the text as `_plain` prints it."""
    return sum(_width(c) for c in text)


def _width(c: str) -> int:
    if not c.isprintable():
        return 1
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1
