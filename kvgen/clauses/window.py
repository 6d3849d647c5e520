"""window N, window full"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Window:
    """`tokens` None: full."""

    tokens: int | None


def _read(clause: Clause, problems: Problems) -> Window | None:
    word = clause.words[0]
    if word.text == "full":
        return Window(None)
    tokens = count(clause, word, problems, otherwise=", or `window full`")
    return None if tokens is None else Window(tokens)


KIND = Kind(
    "window",
    Window,
    ("window N", "window full"),
    "positions a query sees, itself included",
    "`full`",
    _read,
)
