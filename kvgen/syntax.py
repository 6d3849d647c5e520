"""A file as it was written: words with their places, nothing judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvgen.source import Span


class Word(NamedTuple):
    """A name, number, option or sign. A text of "" stands for one that could not be read and was reported."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Clause:
    """`words` are those behind the keyword. `broken`: it could not be read and was reported; its words are gone."""

    keyword: str
    span: Span
    keyword_span: Span
    words: tuple[Word, ...] = ()
    broken: bool = False

    def numbers(self) -> tuple[Word, ...]:
        return tuple(word for word in self.words if is_number(word))

    def after(self, option: str) -> Word | None:
        """The word behind an option: the 7 of `slack 7`."""
        for here, behind in zip(self.words, self.words[1:], strict=False):
            if here.text == option:
                return behind
        return None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A `policy` (perhaps `from` a parent) or a `model`. `opening` and `closing` are its braces."""

    kind: str
    span: Span
    name: Word
    parent: Word | None
    opening: Span
    closing: Span
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class File:
    """One file. `version` is the `1` of `kvgen 1`, `version_span` the whole of it."""

    version: Word | None
    version_span: Span
    declarations: tuple[Declaration, ...]
    comments: tuple[Word, ...]


def is_number(word: Word) -> bool:
    return not word.text or word.text[0] in ".0123456789"


def clause_text(clause: Clause) -> str:
    """The clause in one line, a single space between its words."""
    text = " ".join((clause.keyword, *(word.text for word in clause.words)))
    return text.replace(" ,", ",")
