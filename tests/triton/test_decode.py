"""Decode and verify: straight from storage, every key that the columns see exactly once."""

import random

import pytest
import torch

from tests.triton.rig import ELEMENTS, Rig, counted_loads

TILE = 32  # keys a step under the interpreter: see INTERPRETER in kvgen/backends/triton_tiles.py


def keys_loaded(rig, loads, queries):
    """Elements of keys and values, counted as keys of one head."""
    heads = rig.policy.heads
    return (loads[ELEMENTS[rig.dtype]] - queries) / (heads.kv * (heads.key_dim + heads.value_dim))


def check_counted(rig, read):
    """The answer is right and each visible key was loaded once, padding and empty splits included."""
    heads, width = rig.policy.heads, read.columns.width
    with counted_loads() as loads:
        seen = rig.check(read)
    plan = rig.kernels.plans["interpreter", rig.dtype.itemsize][0]
    parts = plan.splits * rig.rows * heads.query * width * (heads.value_dim + 1)  # what merge loads
    merged = parts if plan.splits > 1 and rig.dtype is torch.float32 else 0
    queries = plan.splits * rig.rows * heads.query * width * heads.key_dim
    assert keys_loaded(rig, loads, queries + merged) == seen


@pytest.mark.parametrize("ratio", [1, 3, 5, 6, 7, 8, 9, 12, 16])
def test_any_ratio_of_heads(ratio):
    rig = Rig(f"heads query {2 * ratio} kv 2 dim 16 window 20 storage ring slack 3", rows=2)
    rig.fill(50)
    check_counted(rig, rig.append(1))
    check_counted(rig, rig.append(4))


@pytest.mark.parametrize(
    "dims", ["16", "64", "80", "96", "128", "256", "key 32 value 16", "key 24 value 80"]
)
def test_any_dim(dims):
    rig = Rig(
        f"heads query 4 kv 2 dim {dims} window 40 sinks 2 storage ring slack 1", dtype=torch.float16
    )
    rig.fill(70)
    check_counted(rig, rig.append(1))
    check_counted(rig, rig.append(2))


@pytest.mark.parametrize(
    "window", [1, 2, TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1, 3 * TILE - 1]
)
@pytest.mark.parametrize("slack", [0, 2])
def test_windows_around_tile_edges(window, slack):
    rig = Rig(f"dim 16 window {window} storage ring slack {slack}")
    for tokens in (1, window, 2 * window + 7):
        rig.fill(tokens)
        check_counted(rig, rig.append(1))
        check_counted(rig, rig.append(slack + 1))


@pytest.mark.parametrize("splits", range(1, 9))
def test_any_number_of_splits(splits):
    """A split of a ring owns slots; several are empty while the row is short."""
    rig = Rig("heads query 4 kv 1 dim 16 window 150 sinks 3 storage ring slack 5")
    plans = dict(rig.kernels.plans)
    decode, window = plans["interpreter", 4]
    share = -(-155 // splits)
    plans["interpreter", 4] = decode._replace(splits=splits, split=share), window
    rig.kernels.plans = plans
    for tokens, width in ((4, 6), (60, 1), (200, 6)):
        rig.fill(tokens)
        check_counted(rig, rig.append(width))


@pytest.mark.parametrize(
    "clauses",
    [
        "chunk 20 storage ring",
        "chunk 20 storage ring slack 3",
        "window 7 chunk 20 storage ring slack 3",
        "window 30 chunk 20 storage ring",
        "window 30 sinks 40 storage ring slack 3",
        "window full storage contiguous",
        "window 30 storage contiguous",
        "window 30 sinks 5 storage fixed 400",
        "chunk 20 storage contiguous",
        "window 30 storage ring slack 3 softcap 2",
        "window 30 storage ring slack 3 sink_logits",
        "window 150 sinks 2 storage ring slack 3 sink_logits softcap 3 scale 0.3",
    ],
)
def test_every_clause(clauses):
    rig = Rig(f"heads query 3 kv 1 dim 16 {clauses}")
    for tokens in (1, 19, 45, 100):
        rig.fill(tokens)
        rig.check(rig.append(1))
        rig.check(rig.append(min(4, rig.in_place)))


def test_rows_of_different_lengths_and_padding_columns():
    rig = Rig("heads query 6 kv 2 dim 16 window 20 sinks 2 storage ring slack 7", rows=4)
    rig.commit(rig.append(60, left=[0, 10, 60, 3], tokens=[60, 1, 0, 40]))
    rig.check(rig.append(1))
    rig.check(rig.append(8, left=[0, 3, 8, 0], tokens=[8, 5, 0, 2]))
    rig.check(rig.append(1, left=[1, 0, 0, 1], tokens=[0, 1, 1, 0]))


def test_more_columns_than_one_program_holds():
    """16 heads by 24 columns are 6 blocks of 64 query rows, each with its own part of the window."""
    rig = Rig("heads query 16 kv 1 dim 16 window 30 storage ring slack 23", rows=2)
    rig.fill(80)
    rig.check(rig.append(24, left=[0, 5], tokens=[24, 12]))


def test_a_row_does_not_depend_on_its_batch():
    """Bit for bit: what a split reads depends on the row alone."""
    clauses = "heads query 4 kv 2 dim 16 window full storage contiguous"
    batch, alone = Rig(clauses, rows=3), Rig(clauses)
    batch.commit(batch.append(200, tokens=[170, 3, 200]))
    alone.append(170)
    alone.keys[0], alone.values[0] = batch.keys[0], batch.values[0]
    q = torch.randn(3, 4, 1, 16)
    k, v = torch.randn(3, 2, 1, 16), torch.randn(3, 2, 1, 16)
    answers = []
    for rig, rows in ((batch, 3), (alone, 1)):
        firsts = tuple(rig.offsets)
        columns = rig.columns_type(firsts, firsts, tuple(n + 1 for n in firsts), 1)
        rig.kernels.write(rig.storage, k[:rows], v[:rows], columns)
        answers.append(rig.kernels.attend(rig.read(columns), q[:rows], 0.25, None)[0][0])
    assert torch.equal(*answers)


def test_a_read_attended_after_later_appends():
    """The device has moved on; the read's own places are sent along."""
    rig = Rig("heads query 2 kv 1 dim 16 window full storage contiguous", rows=2)
    rig.fill(20)
    early = rig.append(3)
    rig.append(1)
    rig.append(1)
    rig.check(early)


def test_queries_of_float32_and_odd_scales():
    rig = Rig("heads query 4 kv 2 dim 16 window 40 storage ring slack 3", dtype=torch.float16)
    rig.fill(60)
    rig.check(rig.append(2), query_dtype=torch.float32)
    for scale in (-0.5, 1e-30, 3.0):
        rig.check(rig.append(1), scale=scale)


def test_random_lives():
    """Appends of any size with any padding, over policies drawn at random."""
    for seed in range(4):
        choose = random.Random(seed)
        kv, ratio = choose.choice([1, 2]), choose.choice([1, 3, 8])
        window, slack = choose.choice([1, 9, 17, 40]), choose.choice([0, 1, 5])
        sinks = choose.choice([0, 0, 2, 11])
        clauses = (
            f"heads query {kv * ratio} kv {kv} dim 16 window {window} storage ring slack {slack}"
        )
        rig = Rig(f"{clauses} sinks {sinks}" if sinks else clauses, rows=2, seed=seed)
        for _ in range(5):
            width = choose.choice([1, 1, 2, slack + 1, window, window + slack, 2 * window + 9])
            left = [choose.randint(0, width) for _ in range(2)]
            read = rig.append(width, left, [choose.randint(0, width - skip) for skip in left])
            rig.check(read)
            rig.commit(read)
