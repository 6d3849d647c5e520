"""scale X"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import real
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Scale:
    factor: float


def _read(clause: Clause, problems: Problems) -> Scale | None:
    factor = real(clause, clause.words[0], problems)
    return None if factor is None else Scale(factor)


KIND = Kind("scale", Scale, ("scale X",), "softmax scale", "1/sqrt(key dim)", _read)
