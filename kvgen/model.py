"""The executable specification: what every generated cache does, in plain integers. No torch, no storage, no speed.

Plans, tests, pictures and `verify` ask these functions; nothing else in the project derives visibility, slots or trim rules.
Positions count a row's real tokens from 0; columns are places along L of an append; slots are places in storage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvgen.ir import (
    CachePolicy,
    DType,
    Fixed,
    Heads,
    Model,
    Program,
    Retention,
    Ring,
    Stateless,
)

GROWTH_SLOTS = 32  # contiguous storage grows to the next multiple
SPARE_SLOTS = 63  # and gives slots back once a row has more than these free
LONG_ROW = 131_072  # tokens, where rows are compared by what they cost


# -- 1. What a query sees


def visible(retention: Retention, query: int, key: int) -> bool:
    """Whether the query at position `query` of a row sees the key at position `key`. The meaning of a policy."""
    window, sinks, chunk = retention.window_tokens, retention.sink_tokens, retention.chunk_tokens
    return (
        key <= query
        and (window is None or query - key < window or key < sinks)
        and (chunk is None or key // chunk == query // chunk)
    )


def first(retention: Retention, query: int) -> int:
    """The first position that the query sees, sinks aside."""
    window, chunk = retention.window_tokens, retention.chunk_tokens
    by_window = 0 if window is None else query - window + 1
    by_chunk = 0 if chunk is None else query - query % chunk
    return max(0, by_window, by_chunk)


def reach(retention: Retention) -> int | None:
    """How many positions a query sees at most, sinks aside; None: all before it."""
    limits = [n for n in (retention.window_tokens, retention.chunk_tokens) if n is not None]
    return min(limits) if limits else None


def effective_sinks(retention: Retention) -> int:
    """The sinks that change what is seen: without a window every position is seen anyway."""
    return retention.sink_tokens if retention.window_tokens is not None else 0


# -- 2. Slots


def ring_slots(retention: Retention, storage: Ring) -> int:
    """R: what a query can see, and the slack."""
    tokens = reach(retention)
    if tokens is None:
        raise ValueError("a ring needs a window or a chunk")
    return tokens + storage.slack_slots


def capacity(policy: CachePolicy) -> int | None:
    """Slots a row as declared; None when it grows, when the constructor decides, or when nothing is stored."""
    match policy.storage:
        case Ring():
            return ring_slots(policy.retention, policy.storage) + policy.retention.sink_tokens
        case Fixed(slots):
            return slots
        case _:
            return None


def slot(policy: CachePolicy, position: int) -> int:
    """Where a position lives: its own number, or, past the sinks of a ring, the place of the position R before it."""
    sinks = policy.retention.sink_tokens
    if not isinstance(policy.storage, Ring) or position < sinks:
        return position
    return sinks + (position - sinks) % ring_slots(policy.retention, policy.storage)


def held_in_slot(policy: CachePolicy, slot: int, offset: int) -> int | None:
    """The newest position below `offset` that belongs in a slot, None if there is none: what the slot shows at that offset."""
    sinks = policy.retention.sink_tokens
    if not isinstance(policy.storage, Ring) or slot < sinks:
        return slot if slot < offset else None
    ring = ring_slots(policy.retention, policy.storage)
    newest = offset - 1 - sinks
    position = newest - (newest - (slot - sinks)) % ring
    return position + sinks if position >= 0 else None


def bytes_per_token(heads: Heads, dtype: DType) -> int:
    return heads.kv * (heads.key_dim + heads.value_dim) * dtype.bytes


def row_bytes(policy: CachePolicy, tokens: int) -> int:
    """Of a row with so many tokens, slots that are free because storage grows in steps left out."""
    if isinstance(policy.storage, Stateless):
        return 0
    slots = capacity(policy)
    return bytes_per_token(policy.heads, policy.dtype) * (tokens if slots is None else slots)


def model_bytes(program: Program, model: Model, tokens: int) -> int:
    """Of a row with so many tokens, in all the layers of a model that own a cache."""
    names = {entry.policy for entry in model.repeat}
    rows = {name: row_bytes(program.policy(name), tokens) for name in names}
    spared = sum(rows[model.policy_of(share.layer)] for share in model.shares)
    return sum(model.count(name) * rows[name] for name in names) - spared


# -- 3. One row through its life


@dataclass(frozen=True, slots=True)
class Row:
    """What a stateful cache knows of a row.

    `offset`: its next position. `oldest`: the oldest non-sink position it still holds. `waiting`: columns beside the ring,
    tokens or padding, not yet written to it. `verified`: tokens that `bypass` may take back now.
    """

    offset: int = 0
    oldest: int = 0
    waiting: bool = False
    verified: int = 0


def in_place(policy: CachePolicy, columns: int) -> bool:
    """Whether `columns` of an append_window are written at once: no query among them sees a token they overwrite."""
    return not isinstance(policy.storage, Ring) or columns <= policy.storage.slack_slots + 1


def settled(policy: CachePolicy, row: Row) -> Row:
    """The row once what waits beside its ring is written: at the next append, merge or save."""
    return replace(row, oldest=_evict(policy, row.oldest, row.offset), waiting=False)


def append_decode(policy: CachePolicy, row: Row) -> Row:
    """One token."""
    end = row.offset + 1
    return Row(end, _evict(policy, row.oldest, end))


def append_window(policy: CachePolicy, row: Row, columns: int, tokens: int, prepared: bool) -> Row:
    """`columns` places of which this row fills `tokens`; `prepared`: part of a prepared prefill, no verify window."""
    row = settled(policy, row)
    end = row.offset + tokens
    verified = 0 if prepared else min(tokens, policy.trim.bypass_tokens)
    if in_place(policy, columns) or columns > ring_slots(policy.retention, policy.storage):  # type: ignore[arg-type]
        return Row(end, _evict(policy, row.oldest, end), False, verified)
    return Row(end, row.oldest, True, verified)


def _evict(policy: CachePolicy, oldest: int, end: int) -> int:
    """The oldest position left once all before `end` are written."""
    if not isinstance(policy.storage, Ring):
        return oldest
    return max(oldest, end - ring_slots(policy.retention, policy.storage))


# -- 4. Taking tokens back


def trimmable(policy: CachePolicy, row: Row, tokens: int) -> bool:
    """Whether, with the row's last `tokens` gone, every later read is exactly what it would have been without them."""
    if isinstance(policy.storage, Stateless) or tokens == 0:
        return True
    if not policy.trim.guarded or tokens > row.offset:
        return False
    offset = row.offset - tokens
    return min(row.oldest, offset) <= max(
        policy.retention.sink_tokens, first(policy.retention, offset)
    )


def bypassable(row: Row, tokens: int) -> bool:
    """Whether `bypass` may take `tokens` back: they are of the verify window just appended."""
    return tokens <= row.verified


def trim(row: Row, tokens: int) -> Row:
    """The row without its last `tokens`; allowed where `trimmable` or `bypassable` says so."""
    offset = row.offset - tokens
    return Row(offset, min(row.oldest, offset), row.waiting, max(0, row.verified - tokens))


def always_trimmable(policy: CachePolicy) -> int | None:
    """The largest m such that any n <= m of its tokens may be taken back from a row at any time; None: all of them.

    A full ring still holds position end - R. Without n tokens the next query asks for first(end - n), which at the worst
    moment is the full reach before it: n = slack + 1 is the last that fits. A reach of 1 asks for nothing older.
    """
    if isinstance(policy.storage, Stateless):
        return None
    if not policy.trim.guarded:
        return 0
    if not isinstance(policy.storage, Ring) or reach(policy.retention) == 1:
        return None
    return policy.storage.slack_slots + 1
