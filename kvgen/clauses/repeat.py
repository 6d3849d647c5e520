"""repeat Local * 5, Global, of a model"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause, Word


@dataclass(frozen=True, slots=True)
class Repeat:
    """Policies' names, with their places, and how many layers in a row each is for."""

    entries: tuple[tuple[Word, int], ...]


def _read(clause: Clause, problems: Problems) -> Repeat | None:
    entries: list[tuple[Word, int]] = []
    readable = True
    for name, number in _entries(clause):
        layers = (
            1
            if number is None
            else count(clause, number, problems, otherwise=", or leave the entry out")
        )
        if layers is None or not name.text:
            readable = False
        else:
            entries.append((name, layers))
    return Repeat(tuple(entries)) if readable else None


def _entries(clause: Clause) -> list[tuple[Word, Word | None]]:
    """Each name, and the number behind its `*`."""
    found: list[tuple[Word, Word | None]] = []
    starred = False
    for word in clause.words:
        if starred:
            found[-1] = (found[-1][0], word)
        elif word.text not in ("*", ","):
            found.append((word, None))
        starred = word.text == "*"
    return found


KIND = Kind(
    "repeat",
    Repeat,
    ("repeat A", "repeat A * 5, B"),
    "the policies of the layers: the entries follow each other, again and again; `A * 5` is five layers of A",
    "required",
    _read,
)
