"""stateless"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Stateless:
    pass


def _read(clause: Clause, problems: Problems) -> Stateless:
    return Stateless()


KIND = Kind(
    "stateless",
    Stateless,
    ("stateless",),
    "for training and scoring: nothing is stored; drops an inherited `storage` and `trim`",
    "off",
    _read,
)
