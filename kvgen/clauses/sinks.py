"""sinks N"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Sinks:
    tokens: int


def _read(clause: Clause, problems: Problems) -> Sinks | None:
    tokens = count(clause, clause.words[0], problems, least=0)
    return None if tokens is None else Sinks(tokens)


KIND = Kind(
    "sinks",
    Sinks,
    ("sinks N",),
    "the first N positions stay visible for ever (positions stay absolute, nothing is rotated again)",
    "0",
    _read,
)
