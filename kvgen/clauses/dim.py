"""dim D, dim key D value E"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Dim:
    key: int
    value: int


def _read(clause: Clause, problems: Problems) -> Dim | None:
    dims = [count(clause, word, problems) for word in clause.numbers()]
    key, value = dims[0], dims[-1]
    return None if key is None or value is None else Dim(key, value)


KIND = Kind(
    "dim",
    Dim,
    ("dim D", "dim key D value E"),
    "head dimension, of keys (and queries) and of values",
    "required",
    _read,
)
