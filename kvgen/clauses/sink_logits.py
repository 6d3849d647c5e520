"""sink_logits"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class SinkLogits:
    pass


def _read(clause: Clause, problems: Problems) -> SinkLogits:
    return SinkLogits()


KIND = Kind(
    "sink_logits",
    SinkLogits,
    ("sink_logits",),
    "one learned logit a query head joins the softmax's denominator; passed to `attend`, neither scaled nor capped",
    "off",
    _read,
)
