"""Where what a query sees begins to change: between these positions `model.first` stands still or goes along."""

from __future__ import annotations

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
