"""`kvgen.model` itself: its formulas against their definitions, over all small states."""

import functools
import itertools

import pytest

from kvgen import model
from kvgen.ir import (
    CachePolicy,
    Contiguous,
    DType,
    Fixed,
    Heads,
    Padding,
    Retention,
    Ring,
    Scores,
    Trim,
)

HORIZON = 12  # positions


def policy(window=None, sinks=0, chunk=None, storage=None, bypass=0) -> CachePolicy:
    return CachePolicy(
        "Tested", 1, Heads(2, 1, 8, 8), DType.F32, Scores(None, None, False), Retention(window, sinks, chunk),
        storage or Ring(0), Padding(False, False), Trim(True, bypass), ()
    )  # fmt: skip


SHAPES = [(w, s, None) for w in (1, 2, 3) for s in (0, 1, 2)]
SHAPES += [(w, 0, k) for w in (None, 2, 3) for k in (1, 2, 3)]
RINGS = [policy(*shape, Ring(slack), min(slack, 2)) for shape in SHAPES for slack in (0, 1, 2)]


@functools.cache
def needed(retention: Retention, end: int) -> frozenset[int]:
    """What the queries from `end` on see of what is before it."""
    return frozenset(
        key
        for query in range(end, end + HORIZON)
        for key in range(end)
        if model.visible(retention, query, key)
    )


class Storage:
    """Slots as they are: what a write overwrites is gone. `held` of a row is the set of positions that can be read."""

    def __init__(self, policy: CachePolicy):
        self.policy, self.slots, self.beside, self.offset = policy, {}, [], 0

    def write(self, positions) -> None:
        for position in positions:
            self.slots[model.slot(self.policy, position)] = position

    def settle(self) -> None:
        self.write(p for p in self.beside if p < self.offset)
        self.beside = []

    def append(self, columns: int, decode: bool) -> None:
        self.settle()
        new = range(self.offset, self.offset + columns)
        ring = model.ring_slots(self.policy.retention, self.policy.storage)
        if decode or columns <= self.policy.storage.slack_slots + 1 or columns > ring:
            self.write(new)
        else:
            self.beside = list(new)
        self.offset += columns

    def trim(self, n: int) -> None:
        self.offset -= n

    def after_trim(self, n: int) -> bool:
        """Whether all that any later query sees of positions before offset - n is still there, unmixed."""
        end = self.offset - n
        if end < 0:
            return False
        return needed(self.policy.retention, end) <= {*self.slots.values(), *self.beside}


@pytest.mark.parametrize("policy", RINGS, ids=lambda p: f"{p.retention}-{p.storage}")
def test_trimmable_is_its_definition(policy):
    """After every sequence of four appends and trims: the rule says what the slots say."""
    ring = model.ring_slots(policy.retention, policy.storage)
    slack = policy.storage.slack_slots
    moves = ["decode", "trim", *sorted({0, 1, 2, slack + 2, ring, ring + 1})]
    for sequence in itertools.product(moves, repeat=4):
        storage, row = Storage(policy), model.Row()
        for move in sequence:
            if move == "trim":
                n = next((n for n in (2, 1) if model.trimmable(policy, row, n)), 0)
                storage.trim(n)
                row = model.trim(row, n)
            elif move == "decode":
                storage.append(1, True)
                row = model.append_decode(policy, row)
            else:
                storage.append(move, False)
                row = model.append_window(policy, row, move, move, False)
            assert storage.offset == row.offset
        for n in range(row.offset + 2):
            assert model.trimmable(policy, row, n) == storage.after_trim(n) or n == 0, (
                sequence,
                n,
                row,
            )


@pytest.mark.parametrize("policy", RINGS, ids=lambda p: f"{p.retention}-{p.storage}")
def test_slots(policy):
    """What a slot shows is the newest position that was written to it; all that a query sees is in some slot."""
    slots = {}
    for position in range(2 * HORIZON):
        slots[model.slot(policy, position)] = position
        assert max(slots) < model.capacity(policy)
        for slot in range(model.capacity(policy)):
            assert model.held_in_slot(policy, slot, position + 1) == slots.get(slot)
        seen = {
            key for key in range(position + 1) if model.visible(policy.retention, position, key)
        }
        assert seen <= set(slots.values())
        others = seen - set(range(policy.retention.sink_tokens))
        assert min(others, default=position) >= model.first(policy.retention, position)


@pytest.mark.parametrize("policy", RINGS, ids=lambda p: f"{p.retention}-{p.storage}")
def test_a_full_ring_gives_back_slack_plus_one(policy):
    least = model.always_trimmable(policy)
    row = model.Row()
    for step in range(4 * HORIZON):
        row = (
            model.append_decode(policy, row)
            if step % 3
            else model.append_window(policy, row, 2, 2, False)
        )
        upto = row.offset if least is None else min(least, row.offset)
        assert all(model.trimmable(policy, row, n) for n in range(upto + 1))


@pytest.mark.parametrize("policy", RINGS, ids=lambda p: f"{p.retention}-{p.storage}")
def test_bypass_is_exact(policy):
    """Whatever bypass may take back could be asked for as well."""
    for warm, columns in itertools.product(range(HORIZON), range(8)):
        row = model.Row()
        for _ in range(warm):
            row = model.append_decode(policy, row)
        row = model.append_window(policy, row, columns, columns, False)
        for n in range(columns + 1):
            if model.bypassable(row, n):
                assert n <= policy.trim.bypass_tokens and model.trimmable(policy, row, n)


@pytest.mark.parametrize("storage", [Contiguous(), Fixed(40)], ids=["contiguous", "fixed"])
def test_without_a_ring_everything_can_be_taken_back(storage):
    tested = policy(3, 1, None, storage)
    row = model.Row()
    for _ in range(HORIZON):
        row = model.append_decode(tested, row)
        assert all(model.trimmable(tested, row, n) for n in range(row.offset + 1))
        assert not model.trimmable(tested, row, row.offset + 1)
