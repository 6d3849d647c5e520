"""Section 2: construction, properties, positions."""

import pytest
import torch

from tests.contract.harness import DEVICE, DTYPES, Pair, make_cache, package, program_text, refused
from tests.contract.policies import POOL, open_capacity, pool_class

RING = "window 4 storage ring slack 2 padding left right"


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("window 4 storage ring slack 2", {"window": 4, "chunk": None, "sinks": 0, "capacity": 6}),
        ("window 4", {"window": 4, "capacity": 4}),
        ("window 3 sinks 2 storage ring", {"window": 3, "sinks": 2, "capacity": 5}),
        ("chunk 4 storage ring slack 1", {"window": None, "chunk": 4, "capacity": 5}),
        ("window 3 chunk 8", {"window": 3, "chunk": 8, "capacity": 3}),
        ("window 8 chunk 3", {"window": 8, "chunk": 3, "capacity": 3}),
        ("window 4 trim guarded bypass 3", {"capacity": 7}),
        ("window full", {"window": None, "chunk": None, "sinks": 0, "capacity": None}),
        ("window full storage fixed 9", {"capacity": 9}),
        ("window 4 storage contiguous", {"window": 4, "capacity": None}),
        ("stateless window 4", {"window": 4, "capacity": None, "row_lengths": None}),
    ],
)
def test_the_declaration_can_be_read_back(clauses, expected, backend):
    cache = make_cache(clauses, 3, backend=backend)
    assert {name: getattr(cache, name) for name in expected} == expected
    assert cache.batch_size == 3
    assert cache.backend == backend
    assert isinstance(cache.attention, str) and cache.attention
    assert cache.offsets == (0, 0, 0) and cache.offset == 0
    assert cache.bytes_per_token == 1 * (8 + 8) * 4
    assert isinstance(cache.signature, str) and cache.signature


def test_open_capacity(backend):
    cache = make_cache("storage fixed", 2, backend=backend, capacity=11)
    assert cache.capacity == 11
    refused(lambda: make_cache("storage fixed", backend=backend), ValueError)
    for bad in (0, -1, 1.5, "4"):
        refused(
            lambda bad=bad: make_cache("storage fixed", backend=backend, capacity=bad), ValueError
        )


@pytest.mark.parametrize(
    "clauses", [RING, "window full", "storage fixed 4", "stateless window 4", "stateless"]
)
def test_capacity_where_the_policy_decides(clauses, backend):
    refused(lambda: make_cache(clauses, backend=backend, capacity=8), ValueError)


@pytest.mark.parametrize("clauses", [RING, "window full", "storage fixed 4"])
def test_row_lengths_are_for_stateless_caches(clauses, backend):
    refused(lambda: make_cache(clauses, 2, backend=backend, row_lengths=[1, 2]), ValueError)


@pytest.mark.parametrize("bad", [[1], [1, 2, 3], [1, -1], [1.5, 2], "ab", 1.5])
def test_bad_row_lengths(bad, backend):
    refused(
        lambda: make_cache("stateless padding right", 2, backend=backend, row_lengths=bad),
        ValueError,
    )


@pytest.mark.parametrize("clauses", [RING, "window full", "storage fixed 4", "stateless window 4"])
def test_bad_arguments(clauses, backend):
    cls = type(make_cache(clauses, backend=backend))
    for rows in (0, -1, 1.5, "2", None):
        refused(lambda rows=rows: cls(rows, backend=backend, device=DEVICE), ValueError)
    for dtype in (torch.float64, torch.int32, "f32", 32):
        refused(lambda dtype=dtype: cls(1, backend=backend, device=DEVICE, dtype=dtype), ValueError)
    for name in ("cuda", "", "Torch", 3, None):
        refused(lambda name=name: cls(1, backend=name, device=DEVICE), ValueError)
    refused(lambda: cls(1, backend=backend, device="nowhere"), ValueError)
    refused(lambda: cls(1, backend=backend, device=DEVICE, masks=object()), ValueError)


@pytest.mark.parametrize(
    "clauses", [RING, "storage fixed 8", "window 4 storage contiguous", "stateless"]
)
def test_properties_are_read_only(clauses, backend):
    cache = make_cache(clauses, 2, backend=backend)
    names = "batch_size backend attention masks row_lengths offsets offset signature nbytes"
    for name in [*names.split(), *"bytes_per_token window sinks chunk capacity".split()]:
        with pytest.raises(AttributeError):
            setattr(cache, name, getattr(cache, name))


def test_auto_takes_one_that_runs():
    cache = make_cache(RING, backend="auto")
    assert cache.backend in ("torch", "cpu", "triton")
    k = torch.zeros(1, 1, 1, 8, device=DEVICE)
    assert cache.append_decode(k, k).attend(torch.zeros(1, 2, 1, 8, device=DEVICE)).shape == (
        1,
        2,
        1,
        8,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("declared", DTYPES)
def test_another_dtype_than_declared(declared, dtype, backend):
    pair = Pair(f"dtype {declared} {RING}", 2, backend=backend, dtype=dtype)
    assert pair.cache.bytes_per_token == 16 * (4 if dtype == "f32" else 2)
    pair.window(3)
    pair.decode()
    pair.window(7)
    pair.recheck()


def test_masks_are_made_or_shared(backend):
    first = make_cache(RING, backend=backend)
    second = make_cache(RING, backend=backend, masks=first.masks)
    assert first.masks is not None
    assert second.masks is first.masks
    assert make_cache(RING, backend=backend).masks is not first.masks


def test_masks_of_different_policies_can_be_shared(backend):
    made = package(program_text({"Near": "window 3 padding right", "Far": "chunk 5 padding right"}))
    near = Pair("window 3 padding right", 2, backend=backend, cls=made.NearCache)
    far = Pair("chunk 5 padding right", 2, backend=backend, cls=made.FarCache)
    far.cache = made.FarCache(2, backend=backend, device=DEVICE, masks=near.cache.masks)
    for pair in (near, far, near, far):
        pair.prefill([4, 2], splits=[3, 2])
        pair.decode()
        pair.window(3)


def test_masks_of_all_policies_can_be_shared(backend):
    """What one builds is never mistaken for what another needs."""
    pairs, masks = [], None
    for name, clauses in POOL.items():
        if "padding left right" in clauses:
            pair = Pair(clauses, 2, backend=backend, cls=pool_class(name), **open_capacity(clauses))
            options = {**pair.options, "masks": masks, "device": DEVICE}
            pair.cache = pair.cls(2, backend=backend, **options)
            masks = pair.cache.masks
            pairs.append(pair)
    for step in ("prefill", "decode", "window", "decode", "long"):
        for pair in pairs:
            if step == "prefill":
                pair.prefill([7, 3], [0, 2], [4, 5])
            elif step == "decode":
                pair.decode()
            else:
                pair.window(3 if step == "window" else 9)


def test_positions(backend):
    cache = make_cache(RING, 2, backend=backend)
    positions = cache.positions(3)
    assert positions.dtype == torch.int64 and positions.device.type == torch.device(DEVICE).type
    assert positions.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert cache.positions(0).shape == (2, 0)
    cache.prepare_prefill([2, 4], [2, 0])
    assert cache.positions(5).tolist() == [[0, 0, 0, 1, 0], [0, 1, 2, 3, 0]]
    for bad in (-1, 1.5, "2", None):
        refused(lambda bad=bad: cache.positions(bad), ValueError)


@pytest.mark.parametrize(
    "clauses", [RING, "window full", "storage fixed 40", "window 3 sinks 2 storage ring"]
)
@pytest.mark.parametrize("heads", ["query 2 kv 1", "query 6 kv 2"])
def test_nbytes_counts_what_is_stored_and_waits(clauses, heads, backend):
    pair = Pair(f"heads {heads} {clauses}", 3, backend=backend)
    cache, token = pair.cache, pair.cache.bytes_per_token
    for width in (0, 1, 3, 5, 1, 4, 9, 1, 2):
        pair.window(width)
        slots = cache.capacity or cache.offset
        waiting = width if "ring" in clauses and 1 < width <= cache.capacity else 0
        assert 3 * slots * token <= cache.nbytes <= 3 * (slots + waiting + 63) * token


@pytest.mark.parametrize("clauses", ["window full", "window 4 storage contiguous"])
def test_growing_storage_gives_back_what_it_no_longer_needs(clauses, backend):
    pair = Pair(clauses, 2, backend=backend, hold=0)
    pair.window(300)
    for n in (100, 120, 60):
        pair.trim(n)
        pair.decode()
        assert pair.cache.nbytes <= 2 * (pair.cache.offset + 63) * pair.cache.bytes_per_token
    pair.call("reset")
    assert pair.cache.nbytes <= 2 * 63 * pair.cache.bytes_per_token


def test_stateless_stores_nothing(backend):
    cache = make_cache("stateless window 4", 2, backend=backend)
    k = torch.zeros(2, 1, 9, 8, device=DEVICE)
    read = cache.append_window(k, k)
    assert cache.nbytes == 0 and cache.offsets == (0, 0)
    read.close()


METHODS = (
    "append_decode append_window prepare_prefill finalize_prefill is_trimmable trim extract_row filter_rows merge_rows "
    "clone reset state_dict load_state_dict positions to sync"
).split()


@pytest.mark.parametrize(
    "clauses", [RING, "window full trim off", "storage fixed 4", "stateless window 4"]
)
def test_every_method_exists_on_every_class(clauses, backend):
    cache = make_cache(clauses, backend=backend)
    assert [name for name in METHODS if not callable(getattr(cache, name, None))] == []
