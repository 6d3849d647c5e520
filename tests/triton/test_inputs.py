"""What callers hand over: any strides are right, and what is wrong is refused before a kernel is launched."""

import importlib

import pytest
import torch

from kvgen.loading import load_text

STORED = "heads query 4 kv 2 dim 16 window 20 storage ring slack 3 sink_logits padding left right"
PLAIN = "heads query 4 kv 2 dim 16 window 20 storage ring slack 3"
TRAINED = "heads query 4 kv 2 dim 16 window 20 stateless"


def cache_class(clauses):
    return load_text(f"kvgen 1\npolicy Tested {{ dtype f32 {clauses} }}\n", "tested").TestedCache


@pytest.fixture
def both():
    """A function from clauses to the same cache on triton and on torch."""

    def make(clauses, rows=2, **options):
        return [cache_class(clauses)(rows, backend=b, **options) for b in ("triton", "torch")]

    return make


# -- layouts: tensors [B, H, L, D] that lie in memory in every way


def fused(b, h, n, d):
    """A part of what one projection gave for q, k and v together."""
    return torch.randn(b, n, 3, h, d)[:, :, 1].transpose(1, 2)


def every_other(b, h, n, d):
    return torch.randn(b, h, n, 2 * d)[..., ::2]


def dims_first(b, h, n, d):
    return torch.randn(d, n, h, b).permute(3, 2, 1, 0)


def one_for_all(b, h, n, d):
    return torch.randn(1, 1, 1, d).expand(b, h, n, d)


def flipped(b, h, n, d):
    return torch.randn(h, b, n, d).transpose(0, 1).flip(2)


def off_by_one(b, h, n, d):
    """It starts 4 bytes after a multiple of 16."""
    return torch.randn(b * h * n * d + 1)[1:].view(b, h, n, d)


def far_strides(b, h, n, d):
    """Of a dimension that has one element, a stride says nothing, whatever it is."""
    x = torch.randn(b, h, n, d)
    strides = [2**62 if size == 1 else s for size, s in zip(x.shape, x.stride(), strict=True)]
    return x.as_strided(x.shape, strides)


LAYOUTS = [fused, every_other, dims_first, one_for_all, flipped, off_by_one, far_strides]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(layout, both):
    caches = both(PLAIN)
    for columns in (30, 1, 4, 25, 1):
        k, v, q = (layout(2, heads, columns, 16) for heads in (2, 2, 4))
        append = "append_decode" if columns == 1 else "append_window"
        found, want = (getattr(cache, append)(k, v).attend(q) for cache in caches)
        torch.testing.assert_close(found, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides_of_what_is_trained(layout, both):
    """And of the gradient that comes back: a sum's has no strides at all."""
    torch.manual_seed(0)
    k, v, q = (layout(2, heads, 24, 16) for heads in (2, 2, 4))
    towards = layout(2, 4, 24, 16)
    answers = []
    for cache in both(TRAINED):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        out = cache.append_window(*leaves[1:]).attend(leaves[0])
        first = torch.autograd.grad(out, leaves, towards, retain_graph=True)
        answers.append((out, *first, *torch.autograd.grad(out.sum(), leaves)))
    for found, want in zip(*answers, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


# -- one row and the batch around it


@pytest.mark.parametrize("storage", ["ring slack 3", "ring", "fixed 200", "contiguous"])
def test_a_row_does_not_depend_on_its_batch(storage):
    """Bit for bit, in decode, verify and windows, whatever the others hold."""
    clauses = f"heads query 4 kv 2 dim 16 window 90 sinks 2 storage {storage} padding left right"
    batch = cache_class(clauses)(3, backend="triton")
    batch.prepare_prefill([100, 7, 61])
    batch.append_window(torch.randn(3, 2, 100, 16), torch.randn(3, 2, 100, 16))
    batch.finalize_prefill()
    alone = batch.extract_row(2)
    for columns in (1, 3, 40, 1):
        k, v, q = (torch.randn(3, heads, columns, 16) for heads in (2, 2, 4))
        append = "append_decode" if columns == 1 else "append_window"
        many = getattr(batch, append)(k, v).attend(q, return_lse=True)
        one = getattr(alone, append)(k[2:], v[2:]).attend(q[2:], return_lse=True)
        for a, b in zip(many, one, strict=True):
            assert torch.equal(a[2:], b)


# -- what never reaches a kernel


def tokens(columns=1, heads=2, dim=16, rows=2, **options):
    return torch.randn(rows, heads, columns, dim, **options)


BAD_APPENDS = {
    "heads": lambda: (tokens(heads=3), tokens(heads=3)),
    "key dim": lambda: (tokens(dim=17), tokens()),
    "value dim": lambda: (tokens(), tokens(dim=15)),
    "rows": lambda: (tokens(rows=3), tokens(rows=3)),
    "columns apart": lambda: (tokens(columns=2), tokens(columns=1)),
    "dtype": lambda: (tokens(dtype=torch.float64), tokens(dtype=torch.float64)),
    "one dtype": lambda: (tokens(), tokens().half()),
    "device": lambda: (tokens(device="meta"), tokens(device="meta")),
    "three dimensions": lambda: (tokens()[0], tokens()[0]),
    "integers": lambda: (tokens().int(), tokens().int()),
}
BAD_QUERIES = {
    "heads": lambda: tokens(heads=3),
    "dim": lambda: tokens(heads=4, dim=8),
    "columns": lambda: tokens(heads=4, columns=2),
    "rows": lambda: tokens(heads=4, rows=1),
    "dtype": lambda: tokens(heads=4, dtype=torch.float64),
    "device": lambda: tokens(heads=4, device="meta"),
}
BAD_LOGITS = {
    "none": lambda: None,
    "too many": lambda: torch.zeros(5),
    "two dimensions": lambda: torch.zeros(4, 1),
    "device": lambda: torch.zeros(4, device="meta"),
}


@pytest.fixture
def launched(monkeypatch):
    """A cache after a first step, and the launches from then on."""
    cache = cache_class(STORED)(2, backend="triton")
    cache.append_decode(tokens(), tokens()).attend(tokens(heads=4), sink_logits=torch.zeros(4))
    found = []
    launch = importlib.import_module(f"{type(cache).__module__.rpartition('.')[0]}._launch")
    monkeypatch.setattr(launch.Kernel, "__call__", lambda self, *rest: found.append(self))
    return cache, found


@pytest.mark.parametrize("make", BAD_APPENDS.values(), ids=BAD_APPENDS)
@pytest.mark.parametrize("append", ["append_decode", "append_window"])
def test_a_wrong_append_launches_nothing(make, append, launched):
    cache, found = launched
    with pytest.raises(ValueError):
        getattr(cache, append)(*make())
    assert found == [] and cache.offsets == (1, 1)


@pytest.mark.parametrize("make", BAD_QUERIES.values(), ids=BAD_QUERIES)
def test_a_wrong_query_launches_nothing(make, launched):
    cache, found = launched
    read = cache.append_decode(tokens(), tokens())
    found.clear()
    with pytest.raises(ValueError):
        read.attend(make(), sink_logits=torch.zeros(4))
    assert found == []


@pytest.mark.parametrize("make", BAD_LOGITS.values(), ids=BAD_LOGITS)
def test_wrong_sink_logits_launch_nothing(make, launched):
    cache, found = launched
    read = cache.append_decode(tokens(), tokens())
    found.clear()
    with pytest.raises(ValueError):
        read.attend(tokens(heads=4), sink_logits=make())
    assert found == []


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_wrong_scale_launches_nothing(scale, launched):
    cache, found = launched
    read = cache.append_decode(tokens(), tokens())
    found.clear()
    with pytest.raises(ValueError):
        read.attend(tokens(heads=4), scale=scale, sink_logits=torch.zeros(4))
    assert found == []
