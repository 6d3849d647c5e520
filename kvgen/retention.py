"""What a query sees, as two numbers, and where it begins to change: between the corners `model.first` stands still or goes along."""

from __future__ import annotations

from kvgen import model
from kvgen.ir import Retention


def corners(retention: Retention) -> list[int]:
    """Positions just before, at and after each limit, early in a row and late."""
    limits = [n for n in (retention.window_tokens, retention.chunk_tokens) if n is not None]
    period = retention.chunk_tokens or 1
    late = period * (1 + max(limits, default=0) // period)
    sinks = retention.sink_tokens
    places = (
        *limits,
        sinks,
        *(n + sinks for n in limits),
        *(n + late for n in limits),
        late,
        2 * late,
    )
    return sorted({0, 1, *(n + d for n in places for d in (-1, 0, 1) if n + d >= 0)})


def sight(retention: Retention, query: int) -> tuple[int, int]:
    """(how many keys at the row's start it sees, the first position it sees from there on)."""
    first = model.first(retention, query)
    kept = retention.sink_tokens if first and model.visible(retention, query, 0) else 0
    return (0, 0) if kept >= first else (kept, first)


def covers(wide: Retention, narrow: Retention, query: int) -> bool:
    """Whether `wide` shows the query all that `narrow` shows it."""
    kept, first = sight(wide, query)
    kept_there, first_there = sight(narrow, query)
    return (kept >= kept_there or first == 0) and (first <= first_there)
