"""The arguments against trying it out, for every small policy and every short row."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kvgen import model
from kvgen.ir import Retention, Ring
from kvgen.verify.facts import facts_of, looks_back
from tests.verify.conftest import program_of

LIMITS = [
    (window, sinks, chunk)
    for window, sinks, chunk in itertools.product((None, 1, 2, 3, 5, 8), (0, 2), (None, 1, 2, 3, 7))
    if not (sinks and chunk)
]


@pytest.mark.parametrize(("window", "sinks", "chunk"), LIMITS)
def test_how_far_a_query_looks_back(window, sinks, chunk):
    retention = Retention(window, sinks, chunk)
    tried = max(p - model.first(retention, p) for p in range(60))
    assert looks_back(retention) == (None if window is None and chunk is None else tried)


RINGS = [
    f"{limits} storage ring slack {slack} trim guarded{f' bypass {bypass}' if bypass else ''}"
    for limits in (
        "window 1",
        "window 4",
        "window 4 sinks 2",
        "chunk 3",
        "window 5 chunk 3",
        "window 2 chunk 7",
    )
    for slack in (0, 1, 3)
    for bypass in range(slack + 1)
]


@pytest.mark.parametrize("clauses", RINGS)
def test_rings_hold(clauses):
    policy = program_of(clauses).policies[0]
    found = facts_of(policy)
    assert len(found) == 5 and all(fact.holds for fact in found), found
    ring = model.ring_slots(policy.retention, policy.storage)
    tried = [n for n in range(1, 3 * ring) if _trimmable_everywhere(policy, ring, n)]
    largest = model.always_trimmable(policy)
    assert tried == (list(range(1, 3 * ring)) if largest is None else list(range(1, largest + 1)))


def _trimmable_everywhere(policy, ring: int, tokens: int) -> bool:
    """Tried at every offset of two periods of a ring that is full."""
    late = 5 * ring + 10 * (policy.retention.chunk_tokens or 1)
    return all(
        model.trimmable(policy, model.Row(offset, offset - ring), tokens)
        for offset in range(late, late + 2 * ring * (policy.retention.chunk_tokens or 1))
    )


def test_slots_that_are_not_needed_are_said():
    policy = program_of("window 4 storage ring slack 3 trim guarded bypass 1").policies[0]
    claims = [fact.claim for fact in facts_of(policy)]
    assert "7 slots are 2 more than the promises need" in claims
    tight = replace(policy, storage=Ring(1))
    assert "5 slots are the least that keep the promises" in [
        fact.claim for fact in facts_of(tight)
    ]


@pytest.mark.parametrize("name", ["ring_slots", "slot", "in_place", "always_trimmable"])
def test_a_wrong_rule_does_not_hold(name, monkeypatch):
    """What the facts are for: a change of the rules that breaks a promise."""
    right = getattr(model, name)
    wrong = {
        "ring_slots": lambda *a: right(*a) - 1,
        "slot": lambda policy, p: right(policy, p) // 2,
        "in_place": lambda policy, columns: right(policy, columns - 1),
        "always_trimmable": lambda policy: right(policy) + 1,
    }[name]
    monkeypatch.setattr(model, name, wrong)
    policy = program_of("window 4 sinks 1 storage ring slack 2 trim guarded bypass 2").policies[0]
    assert not all(fact.holds for fact in facts_of(policy))


def test_numbers_of_any_size():
    policy = program_of(f"window {1 << 40} storage ring slack {1 << 20}").policies[0]
    assert all(fact.holds for fact in facts_of(policy))


def test_without_a_ring():
    for clauses in (
        "window full",
        "storage fixed 9",
        "window 3 storage contiguous",
        "trim off",
        "stateless",
    ):
        assert all(fact.holds for fact in facts_of(program_of(clauses).policies[0]))
