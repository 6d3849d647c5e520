"""layers N, of a model"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Layers:
    count: int


def _read(clause: Clause, problems: Problems) -> Layers | None:
    layers = count(clause, clause.words[0], problems)
    return None if layers is None else Layers(layers)


KIND = Kind(
    "layers",
    Layers,
    ("layers N",),
    "how many layers the model has; they count from 0",
    "required",
    _read,
)
