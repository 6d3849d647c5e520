"""Caches inside torch.compile: how many graphs, the same answers as outside, the host's view, the operators themselves."""

import copy
import gc
import importlib
import sys
import weakref

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from kvgen.loading import load_text

HEADS = "heads query 4 kv 2 dim 8 dtype f32"
POLICIES = {
    "Ring": "window 9 storage ring slack 3 trim guarded bypass 3",
    "Sinks": "window 7 sinks 2 storage ring slack 1 sink_logits",
    "Chunks": "chunk 5 storage ring slack 2 softcap 3",
    "Full": "storage contiguous trim guarded bypass 3",
    "Fixed": "window 20 storage fixed 64",
    "Trained": "window 5 stateless padding right",
}
MODEL = "model Mixed { layers 4 repeat Ring, Full share 3 from 1 }\n"
STORED = [name for name in POLICIES if name != "Trained"]
POLICIES |= {name: f"{POLICIES[name]} padding left right" for name in STORED}
TEXT = "kvgen 1\n" + "".join(f"policy {n} {{ {HEADS} {c} }}\n" for n, c in POLICIES.items()) + MODEL


@pytest.fixture(scope="module")
def package():
    return load_text(TEXT, "compiled")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def columns(width=1, rows=2):
    shapes = (rows, 2, width, 8), (rows, 2, width, 8), (rows, 4, width, 8)
    return [torch.randn(shape) for shape in shapes]


def compiled(step, backend="aot_eager"):
    """(compiled, counter of graphs)."""
    counter = CompileCounterWithBackend(backend)
    return torch.compile(step, fullgraph=True, backend=counter), counter


def twins(package, name, backend="torch"):
    return [getattr(package, f"{name}Cache")(2, backend=backend) for _ in range(2)]


def decode_both(package, name, backend, inner="aot_eager", steps=50):
    """Steps of a cache in a graph and of one outside; returns the number of graphs."""
    mine, plain = twins(package, name, backend)
    options = {"sink_logits": torch.randn(4)} if name == "Sinks" else {}

    def step(cache, k, v, q):
        places = cache.positions(1)
        out, lse = cache.append_decode(k * 2, v + 1).attend(q, 0.3, True, **options)
        return places, out * 2, lse

    fast, counter = compiled(step, inner)
    for _ in range(steps):
        given = columns()
        for x, y in zip(fast(mine, *given), step(plain, *given), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)
        assert mine.offsets == plain.offsets
    assert mine.is_trimmable(2) == plain.is_trimmable(2)
    return counter.frame_count


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("name", STORED)
def test_fifty_steps_are_one_graph(package, name, backend):
    assert decode_both(package, name, backend) == 1


def test_steps_past_the_wrap_on_triton(package):
    assert decode_both(package, "Ring", "triton", steps=14) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Ring", "Full"])
def test_fifty_steps_by_inductor(package, name):
    assert decode_both(package, name, "cpu", "inductor") == 1


def test_another_cache_takes_the_same_graph(package):
    """Also a clone, one with other rows, one from a pickle."""
    cache = package.RingCache(2, backend="torch")
    fast, counter = compiled(lambda cache, k, v, q: cache.append_decode(k, v).attend(q))
    fast(cache, *columns())
    cache.filter_rows([1, 1])
    caches = [cache, cache.clone(), copy.deepcopy(cache), package.RingCache(2, backend="torch")]
    for other in caches:
        plain, given = other.clone(), columns()
        want = plain.append_decode(*given[:2]).attend(given[2])
        torch.testing.assert_close(fast(other, *given), want)
        assert other.offsets == plain.offsets
    assert counter.frame_count == 1


def test_reads_that_are_held_are_snapshots(package):
    mine, plain = twins(package, "Ring")

    def step(cache, k, v, q):
        first = cache.append_decode(k, v)
        with cache.append_decode(v, k) as second:
            return second.attend(q), first.attend(q), first.attend(q + 1)

    fast, _ = compiled(step)
    for _ in range(12):
        given = columns()
        for x, y in zip(fast(mine, *given), step(plain, *given), strict=True):
            torch.testing.assert_close(x, y)
    assert not mine._storage.held(), "a read outlived its graph"


def test_a_read_that_a_graph_returns(package):
    cache = package.RingCache(2, backend="torch")
    fast, _ = compiled(lambda k, v: cache.append_decode(k, v))
    k, v, q = columns()
    read = fast(k, v)
    want = package.RingCache(2, backend="torch").append_decode(k, v).attend(q)
    for _ in range(12):
        cache.append_decode(k + 1, v)
    torch.testing.assert_close(read.attend(q), want)


def test_verify_windows_and_trims_between_them(package):
    mine, plain = twins(package, "Ring", "cpu")
    fast, counter = compiled(lambda cache, k, v, q: cache.append_window(k, v).attend(q))
    for cache in (mine, plain):
        cache.prepare_prefill([20, 11], [0, 9])
    for turn in range(8):
        given = columns(20 if turn == 0 else 4)
        want = plain.append_window(*given[:2]).attend(given[2])
        torch.testing.assert_close(fast(mine, *given), want)
        for cache in (mine, plain):
            cache.finalize_prefill()
            if turn:
                cache.trim([2, turn % 4], bypass=True)
        assert mine.offsets == plain.offsets
    assert counter.frame_count == 2, "a graph for the prefill, one for the windows"


def test_a_whole_model(package):
    mine, plain = (package.MixedCaches(2, backend="cpu") for _ in range(2))

    def step(caches, k, v, q):
        reads = {}
        for layer, donor in enumerate(caches.donors):
            if layer == donor:
                reads[layer] = caches.layers[layer].append_decode(k + layer, v)
            q = q + reads[donor].attend(q)
        return q, caches.positions(1)

    fast, counter = compiled(step)
    for _ in range(20):
        given = columns()
        for x, y in zip(fast(mine, *given), step(plain, *given), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1
    assert mine.offsets == plain.offsets == (20, 20)
    mine.trim(1)


@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_a_stateless_cache_with_gradients(package, backend):
    cache = package.TrainedCache(2, backend=backend)
    given = [x.requires_grad_() for x in columns(12)]
    fast, counter = compiled(lambda k, v, q: cache.append_window(k, v).attend(q))
    want = cache.append_window(*given[:2]).attend(given[2])
    for _ in range(2):
        out = fast(*given)
        torch.testing.assert_close(out, want)
        for x, y in zip(
            torch.autograd.grad((out**2).sum(), given),
            torch.autograd.grad((want**2).sum(), given, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(x, y)
    assert counter.frame_count == 1


def test_a_stateless_cache_on_triton_is_a_break(package):
    """Its kernels are launched by hand: a graph ends before them and another begins behind; `fullgraph` says why it cannot."""
    cache = package.TrainedCache(2, backend="triton")
    given = [x.requires_grad_() for x in columns(7)]

    def step(k, v, q):
        return cache.append_window(k * 2, v).attend(q) + 1

    want = step(*given)
    out = torch.compile(step, backend="aot_eager")(*given)
    torch.testing.assert_close(out, want)
    for x, y in zip(*(torch.autograd.grad((z**2).sum(), given) for z in (out, want)), strict=True):
        torch.testing.assert_close(x, y)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="leave out fullgraph"):
        torch.compile(step, fullgraph=True, backend="aot_eager")(*given)


@pytest.mark.slow
def test_reduce_overhead(package):
    """The operators are left out of what torch captures; on a CPU it captures nothing."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mine, plain = (package.RingCache(2, device=device) for _ in range(2))
    project = torch.nn.Linear(8, 8, device=device)

    def step(cache, k, v, q):
        return project(cache.append_decode(project(k), v).attend(q) * 2)

    fast = torch.compile(step, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(20):
            given = [x.to(device) for x in columns()]
            got = fast(mine, *given).clone()
            torch.testing.assert_close(got, step(plain, *given), rtol=1e-4, atol=1e-4)
    assert mine.offsets == plain.offsets == (20, 20)


def test_in_inference_mode_and_out_of_it(package):
    with torch.inference_mode():
        cache = package.RingCache(2, backend="torch")
        fast, _ = compiled(lambda k, v, q: cache.append_decode(k, v).attend(q))
        fast(*columns())
    fast(*columns())
    assert cache.offsets == (2, 2)


def test_a_thread_that_compiles_changes_nothing_for_others(package, monkeypatch):
    """`torch.compiler.is_compiling()` is true in all threads as long as one compiles; a step outside is none the less outside."""
    cache = package.RingCache(2, backend="torch")
    k, v, q = columns()
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    assert type(cache.append_decode(k, v)).__name__ == "RingRead"
    names = operators(package).OPERATORS
    names.attend(names.append(cache._token, k, v, True), q, None, None, 8)
    assert cache.offsets == (2, 2)


# -- errors


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda k, v, q: (k[..., :4], v, q), r"k must be \[2, 2, 1, 8\], got \[2, 2, 1, 4\]"),
        (lambda k, v, q: (k, v.half(), q), "v must be torch.float32 on cpu, got torch.float16"),
        (lambda k, v, q: (k, v, q[0]), r"q must be \[2, 4, 1, 8\]"),
    ],
)
def test_a_wrong_tensor_is_the_same_error(package, spoil, message):
    cache = package.RingCache(2, backend="torch")
    fast, _ = compiled(lambda k, v, q: cache.append_decode(k, v).attend(q))
    with pytest.raises(ValueError, match=message):
        fast(*spoil(*columns()))


def test_what_is_not_allowed_now_is_the_same_error(package):
    cache = package.FixedCache(2, backend="torch")
    fast, _ = compiled(lambda k, v, q: cache.append_decode(k, v).attend(q))
    cache.prepare_prefill([60, 64])
    with pytest.raises(RuntimeError, match="append_decode is not allowed during a prepared"):
        fast(*columns())
    cache.append_window(*columns(64)[:2])
    cache.finalize_prefill()
    with pytest.raises(RuntimeError, match="do not fit"):
        fast(*columns())
    assert cache.offsets == (60, 64)


def test_gradients_and_other_things_are_refused(package):
    """While it traces, torch wraps what is raised, and before 2.9 says only that there was something; without `fullgraph` it
    runs the step outside, and the error is ours."""
    cache = package.RingCache(2, backend="torch")
    k, v, q = columns()
    step = lambda k, v, q: cache.append_decode(k, v).attend(q)  # noqa: E731
    wrapped = "tracing the code will result in an error"
    for fullgraph, kind, said in ((True, Exception, f"|{wrapped}"), (False, RuntimeError, "")):
        with pytest.raises(kind, match="train with a `stateless` policy" + said):
            torch.compile(step, fullgraph=fullgraph, backend="eager")(
                k.clone().requires_grad_(), v, q
            )
    for fullgraph, kind, said in ((True, Exception, f"|{wrapped}"), (False, ValueError, "")):
        with pytest.raises(kind, match="k must be .* NoneType" + said):
            torch.compile(step, fullgraph=fullgraph, backend="eager")(None, v, q)
    assert cache.offset == 0


# -- the operators


def operators(package):
    return importlib.import_module(f"{package.__name__}._compiled")


def test_operators_are_as_they_declare(package):
    """Schemas and mutation, fake implementations, under AOT dispatch: torch's own check."""
    names, cache = operators(package).OPERATORS, package.RingCache(2, backend="torch")
    k, v, q = columns()
    check = torch.library.opcheck
    check(names.append, (cache._token, k, v, True))
    check(names.append, (cache._token, *columns(4)[:2], False))
    ticket = names.append(cache._token, k, v, True)
    check(names.attend, (ticket, q, None, None, 8))
    check(names.attend_lse, (ticket, q, 0.5, None, 8))
    check(names.positions, (cache._token, torch.device("cpu"), 2, 3))


def test_two_copies_of_a_package_in_one_process(package):
    other = load_text(TEXT, "compiled_too")
    names = [operators(p).LIBRARY.ns for p in (package, other)]
    assert len(set(names)) == 2
    again = sys.modules.pop(operators(other).__name__)
    assert operators(other).LIBRARY.ns not in names, "loaded again it takes a name of its own"
    sys.modules[again.__name__] = again
    caches = [p.RingCache(2, backend="torch") for p in (package, other)]
    fast, _ = compiled(lambda k, v, q: [c.append_decode(k, v).attend(q) for c in caches])
    torch.testing.assert_close(*fast(*columns()))


def test_a_graph_keeps_no_cache(package):
    cache = package.RingCache(2, backend="torch")
    gone = weakref.ref(cache)
    fast, _ = compiled(lambda cache, k, v, q: cache.append_decode(k, v).attend(q))
    fast(cache, *columns())
    token = cache._token
    del cache
    gc.collect()
    assert gone() is None
    with pytest.raises(RuntimeError, match="is gone"):
        operators(package).OPERATORS.append(token, *columns()[:2], True)
