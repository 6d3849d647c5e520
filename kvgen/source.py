"""The text of one file, and places in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_BOM = "\ufeff"


class Span(NamedTuple):
    """The characters from `start` up to `end` of a source's text."""

    start: int
    end: int


class Place(NamedTuple):
    """A line and a column, both counted from 1, the column in characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """`name` as messages print it, `text` without a byte order mark, and where each line starts."""

    name: str
    text: str = field(repr=False)
    line_starts: tuple[int, ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, text: str, name: str) -> SourceFile:
        text = text.removeprefix(_BOM)
        return cls(name, text, (0, *(end.end() for end in _LINE_END.finditer(text))))

    @property
    def stem(self) -> str:
        """The file's name without folder and suffix: the name of its package."""
        return re.split(r"[/\\]", self.name)[-1].removesuffix(".kv")

    def place(self, offset: int) -> Place:
        line = bisect_right(self.line_starts, offset)
        return Place(line, offset - self.line_starts[line - 1] + 1)

    def line(self, number: int) -> str:
        """One line's text, without its end."""
        start = self.line_starts[number - 1]
        last = number == len(self.line_starts)
        end = len(self.text) if last else self.line_starts[number]
        return self.text[start:end].rstrip("\r\n")

    def cut(self, span: Span) -> str:
        return self.text[span.start : span.end]
