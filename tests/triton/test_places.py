"""Places on the device: what a replayed graph moves, and how host and device come to agree again. Replays are played by
launching the append kernel behind the host's back, as a graph does."""

import pytest
import torch

from kvgen.loading import load_text

CLAUSES = {
    "ring": "window 9 storage ring slack 3",
    "sinks": "window 9 sinks 2 storage ring slack 3",
    "fixed": "storage fixed 40",
}


def pair(clauses, rows=2):
    """A cache on triton and one on torch, to be given the same tokens."""
    text = f"kvgen 1\npolicy Tested {{ heads query 2 kv 1 dim 16 dtype f32 {clauses} padding left right }}\n"
    package = load_text(text, "tested")
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
