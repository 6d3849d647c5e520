"""Windows: the ring and the new columns as two sources, or planes that hold the columns already."""

import pytest
import torch

from tests.triton.rig import ELEMENTS, Rig, counted_loads

TILE = 32  # query rows and keys a step under the interpreter


@pytest.mark.parametrize(
    "clauses",
    [
        "window 40 storage ring",
        "window 40 storage ring slack 5 softcap 2",
        "window 40 sinks 3 storage ring sink_logits",
        "window 9 sinks 50 storage ring",
        "chunk 50 storage ring",
        "window 30 chunk 50 storage ring",
        "window full storage contiguous",
        "window 40 sinks 3 storage fixed 400 sink_logits softcap 3",
        "chunk 50 storage contiguous",
    ],
)
def test_every_clause(clauses):
    """A first prefill, chunks shorter and longer than what is seen, before and after a ring has wrapped."""
    rig = Rig(f"heads query 2 kv 1 dim 16 {clauses}")
    for width in (17, 33, 100, 20):
        read = rig.append(width)
        rig.check(read)
        rig.commit(read)


@pytest.mark.parametrize("window", [TILE - 1, TILE, TILE + 1, 2 * TILE])
def test_windows_around_tile_edges(window):
    rig = Rig(f"heads query 1 kv 1 dim 16 window {window} storage ring")
    for width in (TILE, 2 * TILE + 1, window + 1):
        read = rig.append(width)
        rig.check(read)
        rig.commit(read)


@pytest.mark.parametrize(
    "dims", ["16", "64", "80", "96", "128", "256", "key 24 value 80", "key 64 value 16"]
)
def test_any_dim(dims):
    rig = Rig(f"heads query 2 kv 1 dim {dims} window 40 sinks 2 storage ring", dtype=torch.float16)
    rig.fill(60)
    rig.check(rig.append(40))


@pytest.mark.parametrize("ratio", [1, 3, 5, 6, 7, 8, 9, 12, 16])
def test_any_ratio_of_heads(ratio):
    rig = Rig(f"heads query {2 * ratio} kv 2 dim 16 window 20 storage ring")
    rig.fill(30)
    rig.check(rig.append(18))


def test_ragged_rows_and_padding():
    rig = Rig("heads query 3 kv 1 dim 16 window 40 sinks 2 storage ring", rows=4)
    for left, tokens in (([0, 20, 70, 3], [70, 50, 0, 30]), ([5, 0, 0, 70], [50, 70, 33, 0])):
        read = rig.append(70, left, tokens)
        rig.check(read)
        rig.commit(read)


def test_a_tile_reads_what_it_sees_and_nothing_else():
    """Every tile of columns loads the union of what they see once, from the ring and from the new columns."""
    rig = Rig("heads query 1 kv 1 dim 16 window 40 sinks 2 storage ring")
    rig.fill(90)
    read = rig.append(3 * TILE)
    with counted_loads() as loads:
        rig.check(read)
    union = 0
    for tile in range(3):
        first, last = 90 + tile * TILE, 90 + tile * TILE + TILE - 1
        union += last - max(2, first - 39) + 1 + 2  # the window of all of them, and two sinks
    queries = 3 * TILE * 16
    assert loads[ELEMENTS[torch.float32]] == union * 32 + queries


def test_work_grows_with_the_window_not_with_the_square():
    rig = Rig("heads query 1 kv 1 dim 16 window 20 storage ring")
    rig.fill(60)
    loaded = []
    for width in (4 * TILE, 8 * TILE):
        read = rig.append(width)
        with counted_loads() as loads:
            rig.check(read)
        loaded.append(loads[ELEMENTS[torch.float32]])
        rig.commit(read)
    assert loaded[1] < 2.1 * loaded[0]
