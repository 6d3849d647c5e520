"""Between offsets in a source and an editor's positions: lines from 0, columns in units of the agreed encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvgen.source import SourceFile, Span

_UNIT = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


class Position(NamedTuple):
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Positions:
    """Of one text. A byte order mark, which a source does not count, is a column of the first line."""

    source: SourceFile
    encoding: str
    marked: bool

    def position(self, offset: int) -> Position:
        line = self.source.place(offset).line - 1
        start = self.source.line_starts[line]
        return Position(line, self._mark(line) + self._units(self.source.text[start:offset]))

    def range(self, span: Span) -> tuple[Position, Position]:
        return self.position(span.start), self.position(span.end)

    def offset(self, line: int, column: int) -> int:
        """The nearest place there is: an editor may be ahead of the text that was sent."""
        if line >= len(self.source.line_starts):
            return len(self.source.text)
        text, left = self.source.line(line + 1), column - self._mark(line)
        for i, character in enumerate(text):
            if left <= 0:
                return self.source.line_starts[line] + i
            left -= self._units(character)
        return self.source.line_starts[line] + len(text)

    def _mark(self, line: int) -> int:
        return self._units("\ufeff") if self.marked and line == 0 else 0

    def _units(self, text: str) -> int:
        codec, size = _UNIT[self.encoding]
        return len(text) if text.isascii() else len(text.encode(codec, "surrogatepass")) // size
