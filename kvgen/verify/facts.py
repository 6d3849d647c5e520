"""What follows from a policy for rows of any length, by argument and not by trying.

The argument is about one number: how far back a query looks at most. `model.first` is constant or grows by one from one
position to the next, so its distance is largest just before a limit begins to bite, and those positions are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvgen import model
from kvgen.ir import CachePolicy, Contiguous, Fixed, Retention, Ring, Stateless
from kvgen.retention import corners

_ENUMERABLE = 1 << 16  # slots of which all are asked; of more, those at both ends


@dataclass(frozen=True, slots=True)
class Fact:
    """`because`: the argument, with this policy's numbers."""

    claim: str
    because: str
    holds: bool


def facts_of(policy: CachePolicy) -> tuple[Fact, ...]:
    match policy.storage:
        case Ring():
            return tuple(_ring(policy, policy.storage))
        case Stateless():
            return (Fact("nothing is stored", "an append leaves the cache as it found it", True),)
        case _:
            return tuple(_linear(policy))


def looks_back(retention: Retention) -> int | None:
    """The largest distance of a query from the first non-sink position that it sees; None: no limit."""
    if model.reach(retention) is None:
        return None
    return max(p - model.first(retention, p) for p in corners(retention))


# -- rings


def _ring(policy: CachePolicy, storage: Ring) -> Iterator[Fact]:
    back, ring = looks_back(policy.retention), model.ring_slots(policy.retention, storage)
    assert back is not None
    columns = storage.slack_slots + 1
    in_place = model.in_place(policy, columns) and not model.in_place(policy, columns + 1)
    yield Fact(
        "no query sees an overwritten slot",
        f"a query looks back {back:,} positions at most and at most {columns:,} columns are written at once:"
        f" {back + columns:,} of {ring:,} ring slots; more columns wait beside the ring",
        in_place and back + columns <= ring,
    )
    yield Fact(
        "no two tokens that are held share a slot",
        f"positions {ring:,} apart do, and no nearer ones; sinks have slots of their own",
        _apart(policy, ring),
    )
    yield _least(policy, back, ring)
    yield _rollback(policy, back, ring)
    token = model.bytes_per_token(policy.heads, policy.dtype)
    slots = ring + policy.retention.sink_tokens
    yield Fact(
        f"{token * slots:,} bytes a row, for ever",
        f"{_slots(slots)} of {token:,} bytes; {token * ring:,} more at most while columns wait beside the ring",
        model.capacity(policy) == slots,
    )


def _apart(policy: CachePolicy, ring: int) -> bool:
    sinks = policy.retention.sink_tokens
    first = sinks + 3 * ring + 1
    around = (
        range(first, first + ring) if ring <= _ENUMERABLE else (first, first + 1, first + ring - 1)
    )
    slots = [model.slot(policy, p) for p in around]
    again = all(model.slot(policy, p + ring) == model.slot(policy, p) for p in around)
    own = all(model.slot(policy, p) == p for p in {0, max(0, sinks - 1)})
    return len(set(slots)) == len(slots) and again and own and min(slots) >= sinks


def _slots(count: int) -> str:
    return "one slot" if count == 1 else f"{count:,} slots"


def _least(policy: CachePolicy, back: int, ring: int) -> Fact:
    """A draft of the declared bypass and the token before it are written in place: that is what needs most slots."""
    bypass, sinks = policy.trim.bypass_tokens, policy.retention.sink_tokens
    needed, slots = back + bypass + 1 + sinks, ring + sinks
    parts = f"{back + 1:,} that a query sees" + f", {sinks:,} sinks" * (sinks > 0)
    parts += f", {bypass:,} to verify a draft of as many and the token before it in place" * (
        bypass > 0
    )
    more = slots - needed
    if more == 0:
        claim = (
            f"{_slots(slots)} are the least that keep the promises"
            if slots > 1
            else "one slot is the least that keeps the promises"
        )
        because = f"{parts}; with one less, the first query of these would miss its oldest token"
    else:
        claim = f"{slots:,} slots are {more:,} more than the promises need"
        because = (
            f"{parts} make {needed:,}; {more:,} of the slack let as many more tokens be taken back"
        )
    return Fact(claim, because, more >= 0)


def _rollback(policy: CachePolicy, back: int, ring: int) -> Fact:
    always = model.always_trimmable(policy)
    if not policy.trim.guarded:
        return Fact("nothing can be taken back", "`trim off`", always == 0)
    if back == 0:
        return Fact(
            "any number of tokens can be taken back at any time",
            "a query sees only itself",
            always is None,
        )
    most = ring - back
    return Fact(
        f"{most:,} tokens can be taken back at any time, and not always {most + 1:,}",
        f"a full ring holds {ring:,} positions and the next query looks back {back:,}",
        always == most and _always(policy, ring, most) and not _always(policy, ring, most + 1),
    )


def _always(policy: CachePolicy, ring: int, most: int) -> bool:
    """Whether up to `most` tokens can be taken back wherever in its period a full ring stands."""
    late = [p for p in corners(policy.retention) if p > 0]
    offset = 4 * (ring + policy.retention.sink_tokens) * (policy.retention.chunk_tokens or 1)
    return all(
        model.trimmable(policy, model.Row(offset + p + n, offset + p + n - ring), n)
        for p in late
        for n in {1, most - 1, most}
        if n > 0
    )


# -- storage in which a slot is its position


def _linear(policy: CachePolicy) -> Iterator[Fact]:
    positions = (0, 1, 63, 64, 1 << 20, (1 << 40) + 1)
    yield Fact(
        "no query sees an overwritten slot",
        "position p lives in slot p for ever: nothing is overwritten",
        all(model.slot(policy, p) == p for p in positions),
    )
    yield _linear_slots(policy)
    always = model.always_trimmable(policy)
    if policy.trim.guarded:
        claim = "any number of tokens can be taken back at any time"
        yield Fact(claim, "nothing is overwritten", always is None)
    else:
        yield Fact("nothing can be taken back", "`trim off`", always == 0)
    token = model.bytes_per_token(policy.heads, policy.dtype)
    if isinstance(policy.storage, Fixed) and policy.storage.slots is not None:
        slots = policy.storage.slots
        yield Fact(
            f"{token * slots:,} bytes a row, for ever", f"{_slots(slots)} of {token:,} bytes", True
        )
    elif isinstance(policy.storage, Fixed):
        yield Fact(f"{token:,} bytes a slot", "as many slots a row as `capacity` says", True)
    else:
        yield Fact(
            f"{token:,} bytes a token",
            f"and for at most {model.SPARE_SLOTS} slots that are free",
            True,
        )


def _linear_slots(policy: CachePolicy) -> Fact:
    reach = model.reach(policy.retention)
    if reach is None:
        claim = (
            "no slot could be spared"
            if isinstance(policy.storage, Contiguous)
            else "every slot may be needed"
        )
        return Fact(claim, "a later query sees every token", True)
    sinks = policy.retention.sink_tokens
    return Fact(
        f"{reach + sinks:,} slots would do, the row's whole length is kept",
        f"a query sees {reach:,} positions"
        + f" and {sinks:,} sinks" * (sinks > 0)
        + "; `storage ring` would forget the rest",
        True,
    )
