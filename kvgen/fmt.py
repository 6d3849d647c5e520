"""Syntax back to text, in the one style.

Four spaces, keywords padded to a column, comments behind a clause in a column of their own; at most one empty line in a
row, one before each declaration. Every comment is kept: one inside a clause moves to the line before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvgen.diagnostics import Diagnostic
from kvgen.pause import no_collection
from kvgen.source import SourceFile
from kvgen.syntax import Clause, Declaration, File, Word

_WIDTH = 100
_KEYWORD = 8
_COMMENT_COLUMN = 41
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Formatted:
    """`lines`: the line on which each declaration and clause is printed, by its place in the source."""

    text: str
    lines: dict[int, int]


def format_text(text: str, name: str) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """The text in the one style; None, and why, where it cannot be read. Its meaning is not judged."""
    from kvgen.parse import parse

    with no_collection():
        source = SourceFile.of(text, name)
        file, problems = parse(source)
        return (None if problems else format_file(source, file).text), problems


def format_file(source: SourceFile, file: File) -> Formatted:
    printer = _Printer(source, file)
    printer.file(file)
    text = "".join(line + "\n" for line in printer.out)
    return Formatted(text, printer.lines)


class _Printer:
    """Walks the source in order. `last`: up to where it has been printed; `tail`: the last line may take a comment."""

    def __init__(self, source: SourceFile, file: File) -> None:
        self.source, self.comments, self.next = source, file.comments, 0
        self.out: list[str] = []
        self.lines: dict[int, int] = {}
        self.last = 0
        self.tail = False

    def file(self, file: File) -> None:
        if file.version is not None:
            self.item(*file.version_span, 0, [f"kvgen {file.version.text}"])
        for declaration in file.declarations:
            self.declaration(declaration)
        self.before(len(self.source.text), 0)

    def declaration(self, declaration: Declaration) -> None:
        self.apart(declaration.span.start)
        parent = f" from {declaration.parent.text}" if declaration.parent else ""
        head = f"{declaration.kind} {declaration.name.text}{parent} {{"
        self.item(declaration.span.start, declaration.opening.end, 0, [head])
        for clause in declaration.clauses:
            self.item(*clause.span, 4, _clause_lines(clause))
        self.before(declaration.closing.start, 4)
        self.out.append("}")
        self.last, self.tail = declaration.closing.end, True

    def item(self, start: int, end: int, indent: int, lines: list[str]) -> None:
        """One thing on its own lines, after the comments before it and in it."""
        self.before(start, indent)
        self.gap(start)
        for comment in self.taken(end):
            self.out.append(" " * indent + comment.text)
        self.lines[start] = len(self.out) + 1
        self.out += lines
        self.last, self.tail = end, True

    def before(self, offset: int, indent: int) -> None:
        """The comments up to a place: the first may belong to the line above."""
        for comment in self.taken(offset):
            between = self.source.text[self.last : comment.span.start]
            if self.tail and not _LINE_END.search(between):
                self.out[-1] = _beside(self.out[-1], comment.text)
            else:
                self.gap(comment.span.start)
                self.out.append(" " * indent + comment.text)
            self.last, self.tail = comment.span.end, False

    def taken(self, offset: int) -> Iterator[Word]:
        while self.next < len(self.comments) and self.comments[self.next].span.start < offset:
            self.next += 1
            yield self.comments[self.next - 1]

    def gap(self, offset: int) -> None:
        """An empty line where the source has some, save at the start of a file or body."""
        empty = len(_LINE_END.findall(self.source.text[self.last : offset])) > 1
        self.last = offset
        if empty and self.out and self.out[-1] and not self.out[-1].endswith("{"):
            self.out.append("")

    def apart(self, offset: int) -> None:
        """An empty line before a declaration and the comments that stand right above it."""
        first = len(self.out)
        self.before(offset, 0)
        self.gap(offset)
        top = len(self.out)
        while top > first and self.out[top - 1].startswith("#"):
            top -= 1
        if top > 0 and self.out[top - 1]:
            self.out.insert(top, "")


def _beside(line: str, comment: str) -> str:
    return (
        f"{line:{_COMMENT_COLUMN}}{comment}"
        if len(line) < _COMMENT_COLUMN - 1
        else f"{line}  {comment}"
    )


def _clause_lines(clause: Clause) -> list[str]:
    """One line; a long `repeat` goes on below its first entry."""
    head = f"    {clause.keyword}" if not clause.words else f"    {clause.keyword:{_KEYWORD}} "
    lines: list[str] = []
    here = head
    for part in _parts(clause):
        if len(here) + len(part) > _WIDTH and here != head:
            lines.append(here.rstrip())
            here = " " * len(head)
        here += part + " "
    return [*lines, here.rstrip()]


def _parts(clause: Clause) -> list[str]:
    """The words that stay together: the entries of a `repeat`, else all of them."""
    text = " ".join(word.text for word in clause.words).replace(" ,", ",")
    return [text] if clause.keyword != "repeat" else re.split(r"(?<=,) ", text)
