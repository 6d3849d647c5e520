"""Every cell of a picture is what the executable specification says, and the clause named is the one responsible."""

import pytest

from kvgen import model
from kvgen.draw.kinds import Kind, seen_as
from kvgen.draw.picture import pictures
from kvgen.ir import Ring, Stateless
from tests.draw.conftest import policy_program

CLAUSES = [
    "window 5 sinks 2 storage ring slack 2",
    "window 512 storage ring slack 7 padding left right trim guarded bypass 7",
    "window 1 storage ring",
    "chunk 6 storage ring slack 1",
    "window 3 chunk 7 storage ring",
    "window 9 chunk 4 storage contiguous padding right",
    "window 4096 chunk 8192 storage ring",
    "window full",
    "storage fixed 20",
    "storage fixed",
    "window 4 storage fixed 9000",
    "window 6 stateless",
    "window 100 sinks 40 storage ring slack 30 trim off",
    "window 4 sinks 900 storage ring",
]
SEEN = {Kind.SINK, Kind.WINDOW, Kind.CHUNK, Kind.FULL}


def drawn(clauses: str):
    (picture,) = pictures(policy_program(clauses), 32, 12)
    return picture


@pytest.mark.parametrize("clauses", CLAUSES)
def test_sight_is_the_models(clauses):
    picture = drawn(clauses)
    policy = picture.scaled.policy
    for query, row in enumerate(picture.sight):
        for key, kind in enumerate(row):
            assert (kind in SEEN) == model.visible(policy.retention, query, key)
            assert (kind is Kind.FUTURE) == (key > query)


@pytest.mark.parametrize("clauses", CLAUSES)
def test_storage_is_the_models(clauses):
    picture = drawn(clauses)
    policy = picture.scaled.policy
    for t, row in enumerate(picture.storage):
        for slot, cell in enumerate(row):
            assert cell.position == model.held_in_slot(policy, slot, t + 1)
            seen = cell.position is not None and model.visible(policy.retention, t, cell.position)
            assert (cell.kind in SEEN) == seen
        assert sum(cell.fresh for cell in row) == 1
    assert bool(picture.storage) != isinstance(policy.storage, Stateless)


@pytest.mark.parametrize("clauses", CLAUSES)
def test_a_row_holds_all_that_its_next_query_sees(clauses):
    picture = drawn(clauses)
    retention = picture.scaled.policy.retention
    for step in picture.life:
        for row in step.rows:
            held = {c.position for c in (*row.slots, *row.beside) if c.position is not None}
            offset = max(held, default=-1) + 1  # a window of 1 needs nothing, and may hold nothing
            wanted = {p for p in range(offset) if model.visible(retention, offset, p)}
            assert wanted <= held, step
            seen = {c.position for c in (*row.slots, *row.beside) if c.kind in SEEN}
            assert seen == wanted


def test_the_small_policy_keeps_its_relations():
    for clauses in CLAUSES:
        picture = drawn(clauses)
        declared, small = picture.declared, picture.scaled.policy
        pairs = [
            (declared.retention.sink_tokens, small.retention.sink_tokens),
            (declared.trim.bypass_tokens, small.trim.bypass_tokens),
        ]
        if isinstance(declared.storage, Ring):
            pairs.append((declared.storage.slack_slots, small.storage.slack_slots))
            assert small.trim.bypass_tokens <= small.storage.slack_slots
        assert all((large == 0) == (little == 0) and little <= large for large, little in pairs)
        assert type(declared.storage) is type(small.storage)
        assert seen_as(declared) is seen_as(small)


def test_the_scale_is_said():
    assert str(drawn("window 512 storage ring slack 7").scaled) == "window 512 as 12, slack 7 as 2"
    assert not drawn("window 5 storage ring").scaled.changes


def test_both_limits_are_told_apart():
    picture = drawn("window 3 chunk 7 storage ring")
    assert picture.sight[12][8] is Kind.PAST_WINDOW
    assert picture.sight[12][6] is Kind.PAST_CHUNK
    clauses = {entry.kind: entry.clause for entry in picture.legend}
    assert clauses[Kind.PAST_WINDOW] == "window 3  drawn.kv:6"
    assert clauses[Kind.PAST_CHUNK] == "chunk 7  drawn.kv:7"


def test_bytes_are_at_true_size():
    cost = drawn("window 512 storage ring slack 7 dtype bf16").cost
    assert (cost.keys, cost.values, cost.slots) == (16, 16, 519)
    assert cost.long_row == 519 * 32 and cost.whole == 131_072 * 32
