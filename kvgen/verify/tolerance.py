"""How far an answer may be from float64, relative to the larger of 1 and the largest answer: the contract, section 3."""

from __future__ import annotations

_RELATIVE = {"float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}


def relative(dtype: str) -> float:
    """Of stored keys and values of that torch type."""
    return _RELATIVE[dtype]
