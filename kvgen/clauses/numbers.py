"""Numbers of clauses: read, or reported and None."""

from __future__ import annotations

import math
from itertools import pairwise

from kvgen.diagnostics import Label, Problems, shown
from kvgen.syntax import Clause, Word

LARGEST = 2**63 - 1
_KIBI = 1024


def integer(text: str) -> int | None:
    """The value of `512`, `4_096` or `4k`; None beyond 63 bits."""
    thousands = text.endswith("k")
    digits = text.removesuffix("k").replace("_", "").lstrip("0") or "0"
    if len(digits) > len(str(LARGEST)):  # int() is quadratic, and refuses 4,301 digits
        return None
    value = int(digits) * (_KIBI if thousands else 1)
    return value if value <= LARGEST else None


def count(
    clause: Clause, word: Word, problems: Problems, least: int = 1, otherwise: str = ""
) -> int | None:
    """A whole number of at least `least`. `otherwise`: what else may be written where it is smaller."""
    if not word.text:
        return None
    value = integer(word.text)
    if value is None:
        problems.add(
            "KV202",
            f"`{_what(clause, word)}` of more than 63 bits",
            Label(word.span, "positions and slots are counted in 63 bits"),
            f"write a number up to {LARGEST}",
        )
    elif value < least:
        problems.add(
            "KV201",
            f"`{_what(clause, word)}` of {value}",
            Label(word.span, f"must be {least} or more"),
            f"write a whole number of {least} or more{otherwise}",
        )
        return None
    return value


def _what(clause: Clause, number: Word) -> str:
    """What a number of a clause counts: the word before it, in `heads query 8 kv 0` the `kv`."""
    first = clause.words[:4]  # all but of a `repeat`, whose numbers have signs before them
    for before, word in pairwise(first):
        if word is number and before.text.isalpha():
            return before.text
    return clause.keyword


def real(clause: Clause, word: Word, problems: Problems) -> float | None:
    """A finite number above 0."""
    if not word.text:
        return None
    value = _real(word.text)
    if not 0 < value < math.inf:
        why = "must be above 0" if value == 0 else "must be finite"
        problems.add(
            "KV208",
            f"`{clause.keyword}` of {shown(word.text)}",
            Label(word.span, f"{why}, as a 64-bit float"),
            "write a finite number above 0, such as `50`, `0.0625` or `1e-3`",
        )
        return None
    return value


def _real(text: str) -> float:
    if text.endswith("k") or "_" in text:
        whole = integer(text)
        return math.inf if whole is None else float(whole)
    return float(text)
