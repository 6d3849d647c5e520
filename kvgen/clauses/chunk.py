"""chunk N"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Chunk:
    tokens: int


def _read(clause: Clause, problems: Problems) -> Chunk | None:
    tokens = count(clause, clause.words[0], problems, otherwise=", or leave `chunk` out")
    return None if tokens is None else Chunk(tokens)


KIND = Kind(
    "chunk",
    Chunk,
    ("chunk N",),
    "a query sees only its own run of N positions (chunked attention)",
    "none",
    _read,
)
