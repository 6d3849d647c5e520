"""storage contiguous, storage fixed N, storage ring slack N"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Fix, Label, Problems
from kvgen.source import Span
from kvgen.syntax import Clause, Word, is_number


@dataclass(frozen=True, slots=True)
class Storage:
    """`shape` is contiguous, fixed or ring. `slots` of a fixed one, `slack` of a ring: None where not written."""

    shape: str
    slots: int | None = None
    slack: int | None = None


def _read(clause: Clause, problems: Problems) -> Storage | None:
    shape, slack_word = clause.words[0], clause.after("slack")
    slack = None
    if slack_word is not None:
        slack = count(clause, slack_word, problems, least=0)
        if shape.text != "ring":
            _no_ring(clause, slack_word, problems)
            return None
        if slack is None:
            return None
    if shape.text != "fixed" or len(clause.words) == 1:
        return Storage(shape.text, slack=slack)
    open_number = ", or leave it out: `capacity` of the constructor then says it"
    slots = count(clause, clause.words[1], problems, otherwise=open_number)
    return None if slots is None else Storage("fixed", slots)


def _no_ring(clause: Clause, number: Word, problems: Problems) -> None:
    shape = clause.words[0]
    here = next(word.span for word in clause.words if word.text == "slack")
    what = "grows" if shape.text == "contiguous" else "has a fixed number of slots"
    end = clause.words[1].span.end if is_number(clause.words[1]) else shape.span.end
    ring = f"storage ring slack {number.text}" if number.text else "storage ring slack N"
    problems.add(
        "KV203",
        "slack without a ring",
        Label(Span(here.start, number.span.end), "slack keeps slots for rollback in a ring"),
        f"write `{ring}`, or leave `slack {number.text}` out",
        Label(shape.span, f"this storage {what}, nothing is overwritten"),
        fix=Fix.of(Span(end, number.span.end), ""),
    )


KIND = Kind(
    "storage",
    Storage,
    (
        "storage contiguous",
        "storage fixed",
        "storage fixed N",
        "storage ring",
        "storage ring slack N",
    ),
    "`contiguous` grows with the row; `fixed N` is N slots a row, allocated once, and too many tokens are an error; "
    "`ring` is window (or chunk, the smaller if both) + sinks + slack slots, overwritten in place",
    "`ring` if there is a window or chunk, else `contiguous`; slack 0, or G with `bypass G`",
    _read,
)
