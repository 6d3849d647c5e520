"""Section 4: prepared prefills. The harness fills every padding key, value and query with NaN."""

import itertools

import pytest
import torch

from tests.contract.harness import DEVICE, Pair, make_cache, refused

SIDES = {
    "ring": "window 4 storage ring slack 2 padding left right",
    "ring without slack": "window 3 storage ring padding left right",
    "sinks": "window 3 sinks 2 storage ring padding left right",
    "chunk": "chunk 4 storage ring slack 1 padding left right",
    "full": "window full padding left right",
    "fixed": "storage fixed 64 padding left right",
    "capped": "window 4 softcap 2 sink_logits padding left right",
}
LAYOUTS = [
    ([6, 2], [0, 4]), ([2, 6], [4, 0]), ([6, 2], None), ([0, 5], [0, 0]), ([0, 3], [7, 1]), ([0, 0], [2, 0]),
    ([1, 9], [3, 2]), ([7, 7], [1, 1]),
]  # fmt: skip


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_chunks_of_any_size(name, layout, backend):
    lengths, left = layout
    columns = max(a + b for a, b in zip(lengths, left or [0, 0], strict=True)) + 2
    for size in (1, 2, 3, 5, columns):
        for warm in (0, 5):
            pair = Pair(SIDES[name], 2, backend=backend, seed=size)
            pair.window(warm)
            splits = [min(size, columns - i) for i in range(0, columns, size)]
            pair.prefill(lengths, left, splits)
            pair.recheck()
            pair.decode()
            pair.window(3)
            pair.probe()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_types(dtype, backend):
    pair = Pair(f"dtype {dtype} {SIDES['ring']}", 3, backend=backend)
    pair.prefill([5, 0, 9], [2, 1, 0], [4, 3, 2])
    pair.decode(torch.float32)
    pair.window(6)
    pair.recheck()


@pytest.mark.parametrize("name", SIDES)
def test_after_other_calls(name, backend):
    """At any offset, after trims and row changes; ragged rows decode, verify and prefill again."""
    pair = Pair(SIDES[name], 3, backend=backend)
    for lengths, left in (([3, 8, 1], [1, 0, 2]), ([1, 0, 9], None), ([2, 2, 2], [0, 5, 1])):
        pair.prefill(lengths, left)
        for _ in range(3):
            pair.decode()
        pair.window(3)
        pair.trim([0, 1, 1])
        pair.call("filter_rows", [2, 0, 1])
    pair.recheck()


def test_ending_early_counts_what_was_appended(backend):
    for name in SIDES:
        pair = Pair(SIDES[name], 2, backend=backend)
        pair.call("prepare_prefill", [6, 4], [1, 0])
        pair.window(3)
        pair.call("finalize_prefill")
        assert pair.cache.offsets == (2, 3)
        pair.decode()
        pair.call("prepare_prefill", [6, 4], [0, 3])
        pair.call("finalize_prefill")
        pair.decode()
        pair.recheck()


def test_finalize_without_prepare_does_nothing(backend):
    pair = Pair("window 4 trim guarded bypass 2", 2, backend=backend)
    pair.call("finalize_prefill")
    pair.window(3)
    pair.call("finalize_prefill")
    pair.trim(2, bypass=True)
    pair.probe()


@pytest.mark.parametrize("name", SIDES)
def test_what_is_allowed_in_between(name, backend):
    pair = Pair(SIDES[name], 2, backend=backend)
    pair.window(3)
    state = pair.cache.state_dict()
    pair.call("prepare_prefill", [3, 2], [0, 1])
    pair.window(1)
    cache, (k, v) = pair.cache, pair.tokens(1)
    for call in (
        lambda: cache.append_decode(k, v),
        lambda: cache.trim(0),
        lambda: cache.trim(1),
        lambda: cache.trim(1, bypass=True),
        lambda: cache.prepare_prefill([1, 1]),
        lambda: cache.extract_row(0),
        lambda: cache.filter_rows([0]),
        lambda: type(cache).merge_rows([cache, cache]),
        lambda: cache.clone(),
        lambda: cache.state_dict(),
        lambda: cache.load_state_dict(state),
    ):
        refused(call, RuntimeError)
        pair.check()
    assert cache.is_trimmable(0) and cache.is_trimmable([0, 0])
    assert not cache.is_trimmable(1) and not cache.is_trimmable([0, 1])
    refused(lambda: cache.is_trimmable(-1), ValueError)
    properties = "batch_size window chunk sinks capacity backend attention masks offsets offset signature nbytes"
    assert all(hasattr(cache, name) for name in properties.split())
    assert repr(cache)
    pair.window(2)
    pair.call("finalize_prefill")
    pair.probe()


def test_reset_ends_it(backend):
    pair = Pair(SIDES["ring"], 2, backend=backend)
    pair.call("prepare_prefill", [3, 2])
    pair.window(2)
    pair.call("reset")
    assert pair.cache.offsets == (0, 0)
    pair.decode()


@pytest.mark.parametrize("bad", [[1], [1, 2, 3], [1, -1], [1.5, 1], -3, None, "ab", [True, None]])
def test_bad_lengths(bad, backend):
    pair = Pair(SIDES["ring"], 2, backend=backend)
    refused(lambda: pair.cache.prepare_prefill(bad), ValueError)
    if bad is not None:
        refused(lambda: pair.cache.prepare_prefill([1, 1], bad), ValueError)
    pair.decode()


@pytest.mark.parametrize(
    ("sides", "left", "right"),
    [("none", 0, 0), ("left", 1, 0), ("right", 0, 1), ("left right", 1, 1)],
)
@pytest.mark.parametrize("storage", ["window 4 storage ring", "window full"])
def test_sides(storage, sides, left, right, backend):
    def fresh():
        return Pair(f"{storage} padding {sides}", 2, backend=backend)

    pair = fresh()
    pair.prefill([3, 3], [0, 0], [2, 1])  # nothing is padded: allowed everywhere
    pair.prefill([2, 2], None)
    pair = fresh()
    if left:
        pair.prefill([3, 1], [0, 2])
    else:
        refused(lambda: pair.cache.prepare_prefill([3, 1], [0, 2]))
        pair.check()
    pair.decode()
    pair = fresh()
    pair.call("prepare_prefill", [3, 1])
    pair.window(1)
    pair.window(2)  # column 1 is past the end of row 1
    assert pair.cache.offsets == ((3, 1) if right else (1, 1))
    pair.call("finalize_prefill")
    pair.decode()


def test_padding_uses_no_room(backend):
    """Padding columns are no tokens of fixed storage, and evict nothing."""
    pair = Pair("storage fixed 6 padding left right", 2, backend=backend)
    pair.prefill([5, 2], [8, 0], [13])
    pair.decode()
    pair.decode()  # refused: row 0 is full
    assert pair.cache.offsets == (6, 3)
    pair.call("prepare_prefill", [0, 3], [0, 0])
    pair.window(9)
    pair.call("finalize_prefill")
    assert pair.cache.offsets == (6, 6)


def test_a_refused_append_changes_no_prefill(backend):
    pair = Pair("storage fixed 4 padding left right", 2, backend=backend)
    pair.call("prepare_prefill", [3, 6], [2, 0])
    pair.window(3)
    pair.window(2)  # refused: row 1 has room for one
    pair.window(1)
    assert pair.cache.offsets == (2, 4)
    refused(
        lambda: pair.cache.append_window(*[torch.zeros(2, 1, 1, 7, device=DEVICE)] * 2), ValueError
    )
    pair.call("finalize_prefill")
    pair.trim([0, 1])
    pair.decode()


def test_rows_equal_rows_alone(backend):
    """Each row of a padded batch answers as it would alone, at every step."""
    for name, (lengths, left) in itertools.product(
        SIDES, (([6, 2, 4], [0, 4, 1]), ([3, 9, 1], None))
    ):
        batch = Pair(SIDES[name], 3, backend=backend)
        batch.prefill(lengths, left, [4, 4, 4])
        for row in range(3):
            alone = batch.extract(row)
            alone.decode()
            alone.window(5)
            assert alone.cache.offsets == (lengths[row] + 6,)


def test_nan_reaches_nothing(backend):
    """Infinite padding too, and in the columns that a trim takes back."""
    for name in SIDES:
        cache = make_cache(SIDES[name].replace("sink_logits", ""), 1, backend=backend)
        for poison in (torch.nan, torch.inf, -torch.inf):
            good = torch.zeros(1, 1, 2, 8, device=DEVICE)
            bad = torch.full((1, 1, 2, 8), poison, device=DEVICE)
            cache.reset()
            cache.prepare_prefill([2], [2])
            q = torch.cat([bad, good, bad], 2).expand(-1, 2, -1, -1)
            out, lse = cache.append_window(*[torch.cat([bad, good, bad], 2)] * 2).attend(
                q, return_lse=True
            )
            cache.finalize_prefill()
            assert not out.any() and (lse[:, :, [0, 1, 4, 5]] == -torch.inf).all()
            assert lse[:, :, 2:4].isfinite().all()
            cache.append_window(bad, bad)
            cache.trim(2)
            one = good[:, :, :1]  # shorter than what was taken back
            for read in (cache.append_decode(one, one), cache.append_decode(one, one)):
                assert not read.attend(one.expand(-1, 2, -1, -1)).any()
