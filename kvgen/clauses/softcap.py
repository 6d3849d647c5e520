"""softcap X"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import real
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Softcap:
    cap: float


def _read(clause: Clause, problems: Problems) -> Softcap | None:
    cap = real(clause, clause.words[0], problems)
    return None if cap is None else Softcap(cap)


KIND = Kind(
    "softcap",
    Softcap,
    ("softcap X",),
    "scores become X * tanh(score / X), before the mask",
    "none",
    _read,
)
