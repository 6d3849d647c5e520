"""trim off / guarded / guarded bypass G"""

from __future__ import annotations

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Fix, Label, Problems
from kvgen.ir import Trim
from kvgen.source import Span
from kvgen.syntax import Clause


def _read(clause: Clause, problems: Problems) -> Trim | None:
    guarded, word = clause.words[0].text == "guarded", clause.after("bypass")
    if word is None:
        return Trim(guarded, 0)
    bypass = count(clause, word, problems, least=0)
    if bypass is None:
        return None
    if guarded:
        return Trim(guarded, bypass)
    here = Span(clause.words[1].span.start, word.span.end)
    problems.add(
        "KV212",
        "bypass with trim off",
        Label(here, "a bypass takes tokens back"),
        f"write `trim guarded bypass {word.text}`, or leave `bypass {word.text}` out",
        Label(clause.words[0].span, "nothing may be taken back"),
        fix=Fix.of(clause.words[0].span, "guarded"),
    )
    return None


KIND = Kind(
    "trim",
    Trim,
    ("trim off", "trim guarded", "trim guarded bypass G"),
    "what may be taken back: nothing; what is exact; and up to G tokens after a verify window without asking",
    "`guarded`",
    _read,
)
