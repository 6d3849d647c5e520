"""Section 3: appends, reads, accuracy."""

import weakref

import pytest
import torch

from tests.contract.harness import (
    DEVICE,
    DTYPES,
    NAN,
    Held,
    Pair,
    assert_close,
    make_cache,
    plane_addresses,
    refused,
)

RING = "window 4 storage ring slack 2"
STORAGES = [RING, "window 4 storage ring", "window full", "storage fixed 64", "window 3 sinks 2 storage ring",
            "chunk 4 storage ring slack 1", "window 4 storage contiguous", "window 4 sinks 1 storage fixed 64"]  # fmt: skip


def zeros(*shape, **options):
    return torch.zeros(shape, **{"device": DEVICE, **options})


# -- what is appended


@pytest.mark.parametrize("clauses", [*STORAGES, "stateless window 4"])
def test_wrong_tensors_are_value_errors(clauses, backend):
    cache = make_cache(clauses, 2, backend=backend)
    good = zeros(2, 1, 1, 8)
    wrong = [
        zeros(1, 1, 1, 8), zeros(2, 2, 1, 8), zeros(2, 1, 1, 7), zeros(2, 1, 2, 8), zeros(2, 1, 8), zeros(2, 1, 1, 1, 8),
        good.half(), good.double(), good.long(), good.to("meta"), None, 3.0, [[0.0] * 8], zeros(),
    ]  # fmt: skip
    for bad in wrong:
        for k, v in ((bad, good), (good, bad)):
            refused(lambda k=k, v=v: cache.append_decode(k, v), ValueError)
            refused(lambda k=k, v=v: cache.append_window(k, v), ValueError)
    refused(lambda: cache.append_decode(zeros(2, 1, 0, 8), zeros(2, 1, 0, 8)), ValueError)
    refused(lambda: cache.append_decode(zeros(2, 1, 2, 8), zeros(2, 1, 2, 8)), ValueError)
    assert cache.offsets == (0, 0)


def test_the_message_says_what_was_expected_and_what_came(backend):
    cache = make_cache(RING, 2, backend=backend)
    message = str(refused(lambda: cache.append_decode(zeros(2, 3, 1, 8), zeros(2, 3, 1, 8))))
    assert "[2, 1, 1, 8]" in message and "[2, 3, 1, 8]" in message
    message = str(refused(lambda: cache.append_decode(*[zeros(2, 1, 1, 8).half()] * 2)))
    assert "float32" in message and "float16" in message


@pytest.mark.parametrize("clauses", STORAGES)
def test_tensors_that_need_gradients_are_refused(clauses, backend):
    pair = Pair(clauses, 1, backend=backend)
    pair.window(2)
    k, v = pair.tokens(1)
    for first, second in ((k.clone().requires_grad_(), v), (k, v.clone().requires_grad_())):
        error = refused(lambda a=first, b=second: pair.cache.append_decode(a, b), RuntimeError)
        assert "stateless" in str(error)
        error = refused(lambda a=first, b=second: pair.cache.append_window(a, b), RuntimeError)
    pair.check()
    pair.probe()


def test_parameters_may_be_appended_without_gradients(backend):
    pair = Pair(RING, 1, backend=backend)
    k, v = (x.requires_grad_() for x in pair.tokens(1))
    with torch.no_grad():
        pair.cache.append_decode(k, v)
    assert pair.cache.offsets == (1,)


@pytest.mark.parametrize("clauses", [RING, "window full", "stateless window 4"])
def test_any_strides(clauses, backend):
    """Transposed, sliced, expanded and unaligned keys and values."""
    for width in (1, 2, 3, 9):
        plain, odd = (
            make_cache(f"heads query 4 kv 2 {clauses}", 2, backend=backend) for _ in range(2)
        )
        k, v = (
            torch.randn(2, width, 2, 8, device=DEVICE).transpose(1, 2),
            torch.randn(2, 2, width, 17, device=DEVICE)[..., 1::2],
        )
        v = v[:, :1].expand(-1, 2, -1, -1)
        q = torch.randn(2, width, 4, 8, device=DEVICE).transpose(1, 2)
        expected = plain.append_window(k.contiguous(), v.contiguous()).attend(q.contiguous())
        assert_close(odd.append_window(k, v).attend(q), expected.double(), torch.float32)
        assert_close(
            odd.append_window(k, v).attend(q),
            plain.append_window(k.contiguous(), v.contiguous()).attend(q).double(),
            torch.float32,
        )


@pytest.mark.parametrize("clauses", STORAGES)
def test_windows_of_any_length(clauses, backend):
    """Shorter and longer than slack, window and ring, before and after it has wrapped."""
    for first in range(9):
        pair = Pair(clauses, 1, backend=backend, seed=first)
        for width in (first, 3, 7, 2, 5, 1, 12, 6):
            pair.window(width)
            pair.recheck()


@pytest.mark.parametrize("clauses", STORAGES)
def test_an_empty_append(clauses, backend):
    pair = Pair(clauses, 2, backend=backend)
    pair.window(0)
    for width in (3, 0, 5, 0, 0, 9, 0):
        held = pair.window(width)
        assert held.expected[0].shape == (2, 2, width, 8)
        pair.recheck()


@pytest.mark.parametrize(
    "heads", ["query 1 kv 1", "query 3 kv 1", "query 10 kv 2", "query 8 kv 1", "query 6 kv 6"]
)
@pytest.mark.parametrize("dim", ["8", "key 12 value 4", "key 5 value 9", "64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_accuracy(heads, dim, dtype, backend):
    for clauses in (RING, "window full softcap 3 sink_logits", "chunk 4 scale 0.3"):
        pair = Pair(f"heads {heads} dim {dim} dtype {dtype} {clauses}", 2, backend=backend)
        for width in (5, 1, 2, 9):
            pair.window(width)
        pair.decode()
        pair.decode(torch.float32)
        pair.recheck()


# -- what is read


def test_queries_of_the_cache_or_float32(backend):
    for dtype in DTYPES:
        pair = Pair(f"dtype {dtype} {RING}", 2, backend=backend)
        for held in (pair.window(5, torch.float32), pair.decode(torch.float32)):
            assert held.read.attend(held.query).dtype == torch.float32
        held = pair.window(3)
        assert held.read.attend(held.query).dtype == DTYPES[dtype]
        others = {torch.float16, torch.bfloat16, torch.float64, torch.int64} - {DTYPES[dtype]}
        for other in others:
            refused(
                lambda other=other, held=held: held.read.attend(held.query.to(other)), ValueError
            )


@pytest.mark.parametrize("clauses", [RING, "window full", "stateless window 4"])
def test_wrong_queries_are_value_errors(clauses, backend):
    cache = make_cache(clauses, 2, backend=backend)
    k = zeros(2, 1, 3, 8)
    read = cache.append_window(k, k)
    for shape in [(1, 2, 3, 8), (2, 1, 3, 8), (2, 2, 2, 8), (2, 2, 3, 7), (2, 3, 8)]:
        refused(lambda shape=shape: read.attend(zeros(*shape)), ValueError)
    for bad in (None, 1.0, "q", zeros(2, 2, 3, 8).to("meta")):
        refused(lambda bad=bad: read.attend(bad), ValueError)
    for scale in ("1", [1.0], NAN, float("inf")):
        refused(lambda scale=scale: read.attend(zeros(2, 2, 3, 8), scale=scale), ValueError)
    assert read.attend(zeros(2, 2, 3, 8)).shape == (2, 2, 3, 8)


@pytest.mark.parametrize(
    "clauses", [RING, "window full", "window full softcap 3", "chunk 3", "window 3 sinks 1"]
)
def test_scale(clauses, backend):
    """The policy's, else 1 / sqrt(Dk); the caller's before both."""
    for declared in ("", " scale 0.7"):
        pair = Pair(clauses + declared, 2, backend=backend, hold=0)
        for width in (1, 3, 9):
            k, v = pair.tokens(width)
            read, judged = (
                pair.cache.append_window(k, v),
                pair.reference.append_window(pair.store.add(k, v)),
            )
            q = pair.random_tensor(2, 2, width, 8)
            for scale in (None, 0.05, 1.3, 2):
                out, lse = read.attend(q, scale=scale, return_lse=True)
                expected = pair.answer(judged, q, scale=scale)
                assert_close(out, expected[0], torch.float32)
                assert_close(lse, expected[1], torch.float32)


@pytest.mark.parametrize("width", [1, 3, 9])
@pytest.mark.parametrize("clauses", [RING, "window full", "chunk 3", "stateless window 4"])
def test_log_sum_exp(clauses, width, backend):
    """The natural logarithm of the denominator, float32, also for narrow types."""
    for dtype in DTYPES:
        cache = make_cache(f"dtype {dtype} {clauses}", 2, backend=backend)
        k = zeros(2, 1, width, 8, dtype=DTYPES[dtype])
        q = zeros(2, 2, width, 8, dtype=DTYPES[dtype])
        _, lse = cache.append_window(k, k).attend(q, return_lse=True)
        assert lse.dtype == torch.float32 and lse.shape == (2, 2, width)
        reach = {"window 4": 4, "chunk 3": 3}.get(
            " ".join(clauses.split()[-2:]), 4 if "window 4" in clauses else 99
        )
        counts = [i % 3 + 1 if "chunk" in clauses else min(i + 1, reach) for i in range(width)]
        expected = (
            torch.tensor(counts, dtype=torch.float64, device=DEVICE).log().expand(2, 2, width)
        )
        assert_close(lse, expected, torch.float32)
        assert isinstance(cache.append_window(k, k).attend(q), torch.Tensor)


def test_sink_logits_are_given_exactly_when_declared(backend):
    k, q, logits = zeros(1, 1, 1, 8), zeros(1, 2, 1, 8), zeros(2)
    for clauses in (RING, "window full", "stateless window 4"):
        plain = make_cache(clauses, backend=backend).append_decode(k, k)
        refused(lambda read=plain: read.attend(q, sink_logits=logits), ValueError)
        declared = make_cache(f"{clauses} sink_logits", backend=backend).append_decode(k, k)
        refused(lambda read=declared: read.attend(q), ValueError)
        for bad in (
            zeros(1),
            zeros(3),
            zeros(2, 1),
            0.0,
            zeros(2).long(),
            zeros(2).to("meta"),
            [0.0, 0.0],
        ):
            refused(lambda read=declared, bad=bad: read.attend(q, sink_logits=bad), ValueError)
        _, lse = declared.attend(q, sink_logits=logits, return_lse=True)
        assert_close(lse, torch.full((1, 2, 1), 2.0, device=DEVICE).log().double(), torch.float32)


@pytest.mark.parametrize("clauses", [RING, "window full softcap 1.5 scale 0.3"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sink_logits_enter_once_unscaled_and_uncapped(clauses, dtype, backend):
    pair = Pair(f"dtype {dtype} {clauses} sink_logits", 2, backend=backend)
    for width in (1, 2, 6, 9):
        held = pair.window(width)
        for logits in (
            torch.tensor([5.0, -3.0]),
            torch.tensor([-torch.inf, 0.5]),
            torch.tensor([60.0, 0.0]),
        ):
            logits = logits.to(DEVICE)
            out, lse = held.read.attend(held.query, sink_logits=logits, return_lse=True)
            pair_out, pair_lse = _reference_of(pair, held, logits)
            assert_close(out, pair_out, pair.dtype)
            assert_close(lse, pair_lse, pair.dtype)


def _reference_of(pair, held, logits):
    width = held.query.shape[2]
    rows = pair.reference.rows
    judged = pair.reference._read(
        [tuple(range(r.state.offset - width, r.state.offset)) for r in rows]
    )
    return pair.answer(judged, held.query, sink_logits=logits)


def test_partial_results_merge(backend):
    """All parts but one get sink logits of -inf; weighted by their sums they give the whole."""
    whole = Pair("window full sink_logits", 1, backend=backend)
    k, v = whole.tokens(7)
    q, logits = whole.random_tensor(1, 2, 1, 8), whole.random_tensor(2)
    whole.cache.append_window(k[:, :, :6], v[:, :, :6])
    expected, expected_lse = whole.cache.append_decode(k[:, :, 6:], v[:, :, 6:]).attend(
        q, return_lse=True, sink_logits=logits
    )
    parts = []
    for part, sink in ((slice(0, 3), logits), (slice(3, 7), torch.full_like(logits, -torch.inf))):
        cache = make_cache("window full sink_logits", backend=backend)
        cache.append_window(k[:, :, part][:, :, :-1], v[:, :, part][:, :, :-1])
        read = cache.append_decode(k[:, :, part][:, :, -1:], v[:, :, part][:, :, -1:])
        parts.append(read.attend(q, return_lse=True, sink_logits=sink))
    (a, lse_a), (b, lse_b) = parts
    lse = torch.logaddexp(lse_a, lse_b)
    merged = a * (lse_a - lse).exp()[..., None] + b * (lse_b - lse).exp()[..., None]
    assert_close(merged, expected.double(), torch.float32)
    assert_close(lse, expected_lse.double(), torch.float32)


def test_layers_that_share_a_read_attend_with_their_own_queries(backend):
    for clauses in (RING, "window full"):
        pair = Pair(clauses, 2, backend=backend)
        for width in (1, 6, 2):
            held = pair.window(width)
            other = pair.random_tensor(*held.query.shape)
            held.read.attend(other)
            held.read.attend(other.float())
            held.check()


def test_no_attention_happens_before_it_is_asked_for(backend):
    """Appending and dropping the read stores."""
    for clauses in STORAGES:
        pair = Pair(clauses, 1, backend=backend, hold=0)
        for width in (5, 1, 2, 8):
            k, v = pair.tokens(width)
            pair.reference.append_window(pair.store.add(k, v))
            pair.cache.append_window(k, v)
        pair.decode()


# -- snapshots


@pytest.mark.parametrize("clauses", STORAGES)
@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 7, 11])
def test_a_read_is_a_snapshot(clauses, width, backend):
    for warm in (0, 3, 9):
        for attended in (True, False):
            _snapshot_survives(
                Pair(f"{clauses}", 2, backend=backend, hold=0), warm, width, attended
            )


def _snapshot_survives(pair, warm, width, attended):
    pair.window(warm)
    held = pair.window(width) if attended else _unread(pair, width)
    n = next((n for n in (2, 1) if pair.reference.is_trimmable(n)), 0)
    pair.trim(n)
    for change in (1, 2, 4, 9, "filter", "reset", 5, 1):
        if change == "filter":
            pair.call("filter_rows", [1, 1, 0])
        elif change == "reset":
            pair.call("reset")
        else:
            pair.window(change)
        held.check() if attended else None
    del pair.cache
    held.check()


def _unread(pair, width):
    """A read that is first attended when everything is over."""
    k, v = pair.tokens(width)
    read, judged = (
        pair.cache.append_window(k, v),
        pair.reference.append_window(pair.store.add(k, v)),
    )
    q = pair.random_tensor(2, 2, width, 8)
    return Held(read, q, {}, pair.answer(judged, q), pair.dtype)


def test_many_reads_are_held_at_once(backend):
    for clauses in STORAGES:
        pair = Pair(clauses, 2, backend=backend, hold=64)
        for i in range(24):
            pair.window([1, 2, 1, 4, 1, 7][i % 6]) if i % 2 else pair.decode()
            if i % 7 == 6:
                pair.trim(next(n for n in (2, 1, 0) if pair.reference.is_trimmable(n)))
        pair.recheck()
        pair.recheck()


@pytest.mark.parametrize("clauses", [*STORAGES, "stateless window 4"])
def test_a_closed_read(clauses, backend):
    cache = make_cache(clauses, 1, backend=backend)
    for width in (1, 5):
        k, q = zeros(1, 1, width, 8), zeros(1, 2, width, 8)
        read = cache.append_window(k, k)
        read.close()
        read.close()
        refused(lambda read=read, q=q: read.attend(q), RuntimeError)
        with cache.append_window(k, k) as read:
            assert read.attend(q).shape == q.shape
        refused(lambda read=read, q=q: read.attend(q), RuntimeError)


def test_a_dropped_read_is_gone(backend):
    for clauses in STORAGES:
        cache = make_cache(clauses, 1, backend=backend)
        for width in (1, 3, 7):
            k = zeros(1, 1, width, 8)
            try:
                gone = weakref.ref(cache.append_window(k, k))
            except TypeError:
                pytest.fail("a read can be referred to weakly")
            assert gone() is None


# -- memory


def test_what_waits_is_released_by_the_next_append(backend):
    for clauses in (
        RING,
        "window 4 storage ring",
        "window 8 sinks 2 storage ring",
        "chunk 8 storage ring",
    ):
        cache = make_cache(clauses, 2, backend=backend)
        slots = cache.capacity * 2 * cache.bytes_per_token
        for width in (4, cache.capacity + 1, 50):
            k = zeros(2, 1, width, 8)
            cache.append_window(k, k)
            if width > cache.capacity:
                assert cache.nbytes == slots, "a window longer than the ring pins nothing"
            cache.append_decode(k[:, :, :1], k[:, :, :1])
            assert cache.nbytes == slots


def test_a_prefill_is_not_pinned(backend):
    """Neither the caller's tensors nor columns beside the ring outlive the next append."""
    for clauses in STORAGES:
        cache = make_cache(clauses, 1, backend=backend)
        for width in (5, 40):
            k, v = zeros(1, 1, width, 8), zeros(1, 1, width, 8)
            refs = [weakref.ref(k), weakref.ref(v)]
            cache.append_window(k, v)
            del k, v
            assert [ref() for ref in refs] == [None, None]


@pytest.mark.parametrize(
    "clauses", [RING, "window 4 storage ring", "window 3 sinks 2 storage ring", "storage fixed 64"]
)
def test_addresses_are_for_life(clauses, backend):
    pair = Pair(clauses, 2, backend=backend)
    before = plane_addresses(pair.cache, 2, 1)
    assert len(before) == 2

    def same():
        return before <= plane_addresses(pair.cache, 2, 1)

    for width in (1, 3, 9, 2):
        pair.window(width)
        assert same()
    pair.trim(1)
    state = pair.cache.state_dict()
    pair.call("filter_rows", [1, 0])
    assert same()
    pair.decode()
    pair.call("reset")
    assert same()
    pair.cache.load_state_dict(state)
    assert same()


@pytest.mark.parametrize("clauses", STORAGES)
def test_made_in_inference_mode_and_used_outside(clauses, backend):
    """The two modes may alternate over a cache's life."""
    with torch.inference_mode():
        pair = Pair(clauses, 2, backend=backend)
        pair.window(5)
        pair.window(40) if "fixed" not in clauses else pair.window(7)
    pair.decode()
    pair.window(3)
    with torch.inference_mode():
        pair.decode()
        pair.trim(1)
        pair.call("filter_rows", [1, 0, 1])
        pair = pair.extract(1).merge(pair).save_load()
    with torch.no_grad():
        pair.window(3)
        pair.call("reset")
        pair.decode()
    pair.decode()


@pytest.mark.parametrize(
    "clauses", ["window full", "window 4500 sinks 3", "chunk 4400", "window 100 storage contiguous"]
)
def test_more_keys_than_a_step_of_the_softmax(clauses, backend):
    """Thousands of keys, read by a decode, a verify window and a longer one; ragged rows too."""
    pair = Pair(f"{clauses} padding right", 2, backend=backend, hold=3)
    k, v = pair.tokens(4300)
    pair.cache.append_window(k, v)
    pair.reference.append_window(pair.store.add(k, v))
    pair.decode()
    pair.prefill([3, 1])
    pair.decode()
    pair.window(20)
    pair.recheck()


def test_sync_has_nothing_to_do_without_a_graph(backend):
    for clauses in (*STORAGES, "stateless"):
        cache = make_cache(clauses, 1, backend=backend)
        k = zeros(1, 1, 3, 8)
        cache.append_window(k, k)
        before = cache.offsets
        assert cache.sync() is None and cache.offsets == before
