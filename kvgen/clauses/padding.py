"""padding none / left / right / left right"""

from __future__ import annotations

from kvgen.clauses.kind import Kind
from kvgen.diagnostics import Problems
from kvgen.ir import Padding
from kvgen.syntax import Clause


def _read(clause: Clause, problems: Problems) -> Padding:
    sides = {word.text for word in clause.words}
    return Padding(left="left" in sides, right="right" in sides)


KIND = Kind(
    "padding",
    Padding,
    ("padding none", "padding left", "padding right", "padding left right"),
    "the sides a batch may be padded on",
    "`none`",
    _read,
)
