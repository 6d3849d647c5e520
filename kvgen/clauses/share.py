"""share 24 from 18, of a model"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Share:
    layer: int
    donor: int


def _read(clause: Clause, problems: Problems) -> Share | None:
    layer, donor = (count(clause, word, problems, least=0) for word in clause.numbers())
    return None if layer is None or donor is None else Share(layer, donor)


KIND = Kind(
    "share",
    Share,
    ("share L from D",),
    "layer L has no keys and values of its own: it reads those of the earlier layer D; may stand once for each layer",
    "none",
    _read,
)
