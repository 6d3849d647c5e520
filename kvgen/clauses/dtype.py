"""dtype f32 / f16 / bf16"""

from __future__ import annotations

from kvgen.clauses.kind import Kind
from kvgen.diagnostics import Problems
from kvgen.ir import DType
from kvgen.syntax import Clause


def _read(clause: Clause, problems: Problems) -> DType:
    return DType(clause.words[0].text)


KIND = Kind(
    "dtype",
    DType,
    ("dtype f32", "dtype f16", "dtype bf16"),
    "type of stored keys and values",
    "`bf16`",
    _read,
)
