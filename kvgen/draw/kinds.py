"""What a cell of a picture can be, and whose doing it is. Every question is put to `kvgen.model`."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from kvgen import model
from kvgen.ir import CachePolicy, Retention


class Kind(Enum):
    """A colour, a hatching and an entry of the legend; the value names them in a style sheet."""

    SINK = "sink"  # seen for ever
    WINDOW = "window"  # seen while recent
    CHUNK = "chunk"  # seen by its own run only
    FULL = "full"  # seen by every later query
    PAST_WINDOW = "past-window"  # not seen any more: out of the window
    PAST_CHUNK = "past-chunk"  # not seen any more: of an earlier run
    FUTURE = "future"  # not seen yet
    EMPTY = "empty"  # a slot that holds nothing
    SPARE = "spare"  # held, though the next query does not see it
    WAITING = "waiting"  # held beside the ring
    PADDING = "padding"


def seen_as(policy: CachePolicy) -> Kind:
    """The kind of a token that is seen, sinks aside."""
    window, chunk = policy.retention.window_tokens, policy.retention.chunk_tokens
    if chunk is not None and (window is None or chunk <= window):
        return Kind.CHUNK  # the nearer limit
    return Kind.FULL if window is None else Kind.WINDOW


def of_pair(policy: CachePolicy, query: int, key: int) -> Kind:
    """What the key at one position is to the query at another, and by which limit."""
    retention = policy.retention
    if model.visible(retention, query, key):
        return Kind.SINK if _for_ever(retention, key) else seen_as(policy)
    if key > query:
        return Kind.FUTURE
    within_chunk = model.visible(replace(retention, window_tokens=None), query, key)
    return Kind.PAST_WINDOW if within_chunk else Kind.PAST_CHUNK


def of_token(policy: CachePolicy, query: int, key: int) -> Kind:
    """The same for a token in storage, where one that is not seen is there for rollback."""
    kind = of_pair(policy, query, key)
    return kind if kind in (Kind.SINK, seen_as(policy)) else Kind.SPARE


def _for_ever(retention: Retention, key: int) -> bool:
    """A window of one shows only the query itself, and what needs no window."""
    if retention.window_tokens is None:
        return False
    return model.visible(replace(retention, window_tokens=1), key + 1, key)
