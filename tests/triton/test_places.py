"""Places on the device: what a replayed graph moves, and how host and device come to agree again. Replays are played by
launching the append kernel behind the host's back, as a graph does."""

import importlib

import pytest
import torch

from kvgen.loading import load_text

CLAUSES = {
    "ring": "window 9 storage ring slack 3",
    "sinks": "window 9 sinks 2 storage ring slack 3",
    "fixed": "storage fixed 40",
}


def package_of(clauses):
    text = f"policy Tested {{ heads query 2 kv 1 dim 16 dtype f32 {clauses} padding left right }}"
    return load_text(f"kvgen 1\n{text}\nmodel Two {{ layers 2 repeat Tested }}\n", "tested")


def pair(clauses, rows=2):
    """A cache on triton and one on torch, to be given the same tokens."""
    package = package_of(clauses)
    return [package.TestedCache(rows, backend=name) for name in ("triton", "torch")]


def tokens(columns=1, rows=2):
    return torch.randn(rows, 1, columns, 16), torch.randn(rows, 1, columns, 16)


def replay(cache, k, v):
    """Store a column as a captured append_decode would: nothing on the host learns of it."""
    kernels, storage = cache._kernels, cache._storage
    slots = () if kernels.ring else (storage.slots,)
    step = kernels.step_kernel(1, False, False)
    step(
        (len(cache.offsets), 1, 1),
        0,
        k,
        v,
        storage.keys,
        storage.values,
        kernels._places.rows,
        *slots,
    )


def append_both(caches, columns=1):
    k, v = tokens(columns, len(caches[0].offsets))
    q = torch.randn(k.shape[0], 2, columns, 16)
    answers = [
        (cache.append_decode(k, v) if columns == 1 else cache.append_window(k, v)).attend(q)
        for cache in caches
    ]
    torch.testing.assert_close(*answers, rtol=2e-5, atol=2e-5)


def replay_both(caches, times):
    for _ in range(times):
        k, v = tokens(rows=len(caches[0].offsets))
        replay(caches[0], k, v)
        caches[1].append_decode(k, v)


@pytest.fixture(params=CLAUSES.values(), ids=CLAUSES.keys())
def caches(request):
    made = pair(request.param)
    append_both(made, 6)
    append_both(made)
    return made


def test_sync_after_replays(caches):
    replay_both(caches, 3)
    assert caches[0].offset == 7
    caches[0].sync()
    assert caches[0].offsets == caches[1].offsets == (10, 10)
    append_both(caches)
    append_both(caches, 3)


def test_a_trim_between_replays_moves_the_device_too(caches):
    replay_both(caches, 4)
    caches[0].sync()
    for cache in caches:
        cache.trim([2, 1])
    replay_both(caches, 2)
    caches[0].sync()
    assert caches[0].offsets == caches[1].offsets == (11, 12)
    append_both(caches)


def test_rows_and_reset_between_replays(caches):
    replay_both(caches, 1)
    caches[0].sync()
    for cache in caches:
        cache.filter_rows([1, 1])
    replay_both(caches, 2)
    caches[0].sync()
    append_both(caches)
    for cache in caches:
        cache.reset()
    replay_both(caches, 2)
    caches[0].sync()
    assert caches[0].offsets == (2, 2)
    append_both(caches)


def test_is_trimmable_knows_what_replays_overwrote():
    made = pair(CLAUSES["ring"])
    append_both(made, 6)
    append_both(made)
    replay_both(made, 30)
    made[0].sync()
    assert [made[0].is_trimmable(n) for n in (4, 5)] == [True, False]


def test_a_full_row_writes_nothing_and_says_so_at_sync():
    made = pair("storage fixed 8")
    append_both(made, 7)
    replay_both(made, 1)
    before = made[0]._storage.keys.clone()
    replay(made[0], *tokens())
    assert torch.equal(before, made[0]._storage.keys)
    with pytest.raises(RuntimeError, match="rows \\[0, 1\\] are full"):
        made[0].sync()
    assert made[0].offsets == (8, 8)
    for cache in made:
        cache.trim(3)
    replay_both(made, 2)
    made[0].sync()
    append_both(made)


def test_other_backends_have_nothing_to_sync():
    _, plain = pair(CLAUSES["ring"])
    plain.append_decode(*tokens())
    plain.sync()
    assert plain.offset == 1


def test_a_model_is_brought_up_to_date_as_one():
    caches = package_of(CLAUSES["ring"]).TwoCaches(2, backend="triton")
    for cache in caches.layers:
        cache.append_decode(*tokens())
        for _ in range(15):
            replay(cache, *tokens())
    caches.sync()
    assert caches.offsets == (16, 16)
    assert [caches.is_trimmable(n) for n in (4, 5)] == [True, False]


def test_replays_while_columns_wait_beside_the_ring_are_refused():
    cache, _ = pair(CLAUSES["ring"])
    cache.append_window(*tokens(6))
    replay(cache, *tokens())
    with pytest.raises(RuntimeError, match="waited beside the ring"):
        cache.sync()
    cache.reset()
    cache.append_decode(*tokens())
    cache.sync()
    assert cache.offsets == (1, 1)


@pytest.mark.parametrize("clauses", CLAUSES.values(), ids=CLAUSES.keys())
def test_what_a_graph_holds_keeps_its_address(clauses):
    """Planes and places, for life; only another number of rows moves them."""
    cache, _ = pair(clauses)

    def addresses():
        storage = cache._storage
        held = storage.keys, storage.values, cache._kernels._places.rows
        return [x.data_ptr() for x in held]

    before = addresses()
    cache.append_window(*tokens(6))
    state = cache.state_dict()
    cache.append_decode(*tokens())
    cache.trim(1)
    cache.filter_rows([1, 1])
    cache.load_state_dict(state)
    cache.reset()
    for _ in range(20):
        cache.append_decode(*tokens())
    assert addresses() == before
    cache.filter_rows([0])
    assert cache.batch_size == 1
    assert not set(addresses()) & set(before)
    replay(cache, *tokens(rows=1))
    cache.sync()
    assert cache.offsets == (21,)


def captured(monkeypatch, cache):
    """As if the current stream were being captured: there is none without a GPU."""
    package = type(cache).__module__.rpartition(".")[0]
    for module in ("_triton", "_places"):
        monkeypatch.setattr(
            importlib.import_module(f"{package}.{module}"), "capturing", lambda: True
        )


def test_storage_that_grows_refuses_capture(monkeypatch):
    cache, _ = pair("storage contiguous")
    cache.append_decode(*tokens())
    captured(monkeypatch, cache)
    with pytest.raises(RuntimeError, match="no graph can capture it: declare `storage fixed`"):
        cache.append_decode(*tokens())
    assert cache.offsets == (1, 1)


def test_places_from_the_host_are_not_captured(monkeypatch):
    """A graph would put the rows where they were when it was captured, at each replay."""
    cache, _ = pair(CLAUSES["fixed"])
    cache.append_decode(*tokens())
    captured(monkeypatch, cache)
    cache.append_decode(*tokens())
    cache.prepare_prefill([1, 0])
    with pytest.raises(RuntimeError, match="copied inside a graph"):
        cache.append_window(*tokens())
    assert cache.offsets == (2, 2)
