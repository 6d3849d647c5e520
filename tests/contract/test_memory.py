"""What a step copies and computes: no stored keys in a decode step, also while reads are held; work grows as L * min(L, W)."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.contract.harness import DEVICE, make_cache, storage_tensors

SLOTS, DIM = 512, 256
POLICIES = {
    "ring": f"window {SLOTS} storage ring",
    "ring with slack": f"window {SLOTS - 4} storage ring slack 4",
    "sinks": f"window {SLOTS - 4} sinks 4 storage ring",
    "chunk": f"chunk {SLOTS} storage ring",
    "full": "window full",
    "fixed": f"storage fixed {4 * SLOTS}",
    "window in fixed": f"window {SLOTS} storage fixed {4 * SLOTS}",
}


class Copied(TorchDispatchMode):
    """Bytes of all outputs that are views of nothing, and multiply-adds of the products."""

    def __init__(self):
        super().__init__()
        self.bytes = self.products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        known = {x.untyped_storage().data_ptr() for x in inputs}
        for tensor in tree_leaves(out):
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.untyped_storage().data_ptr() not in known
            ):
                self.bytes += tensor.nbytes
        self.products += _products(func, inputs, out)
        return out


def _products(func, inputs, out) -> int:
    name = func.__name__
    if "scaled_dot_product" in name:
        q, k = inputs[:2]
        return 2 * q.numel() * k.shape[-2]
    if name.split(".")[0] in ("mm", "bmm", "baddbmm", "addmm"):
        return out.numel() * inputs[-2].shape[-1]
    return 0


def _step(cache, ragged: bool, held: list) -> Copied:
    k = torch.randn(2, 1, 1, DIM, device=DEVICE)
    q = torch.randn(2, 2, 1, DIM, device=DEVICE)
    with Copied() as copied:
        read = cache.append_decode(k, k)
        read.attend(q)
    held.append(read)
    return copied


@pytest.mark.parametrize("held", [0, 1, 3])
@pytest.mark.parametrize("ragged", [False, True], ids=["alike", "ragged"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_decode_step_copies_no_stored_keys(name, ragged, held, backend):
    cache = make_cache(f"dim {DIM} padding right {POLICIES[name]}", 2, backend=backend)
    first = 3 * SLOTS // 2 + 40  # no step below makes contiguous storage grow
    k = torch.randn(2, 1, first, DIM, device=DEVICE)
    if ragged:
        cache.prepare_prefill([first, first - 5])
    cache.append_window(k, k)
    cache.finalize_prefill()
    reads, copied = [], []
    for _ in range(8):
        copied.append(_step(cache, ragged, reads).bytes)
        del reads[: max(0, len(reads) - held)]
    plane = 2 * SLOTS * DIM * 4
    assert sorted(copied)[-2] < plane // 4, f"{copied} bytes, a plane has {plane}"


@pytest.mark.parametrize("name", ["ring", "full"])
def test_an_append_alone_costs_a_token(name, backend):
    cache = make_cache(f"dim {DIM} {POLICIES[name]}", 2, backend=backend)
    k = torch.randn(2, 1, SLOTS + 40, DIM, device=DEVICE)
    cache.append_window(k, k)
    costs = []
    for _ in range(8):
        with Copied() as copied:
            cache.append_decode(k[:, :, :1], k[:, :, :1])
        costs.append(copied.bytes)
    assert sorted(costs)[-2] < 16 * 2 * DIM * 4


@pytest.mark.parametrize(
    "clauses", ["window 32 storage ring", "window 32 sinks 4 storage ring", "chunk 32 storage ring"]
)
@pytest.mark.parametrize("stateless", [False, True], ids=["stored", "stateless"])
def test_work_grows_with_the_window_not_with_the_square(clauses, stateless):
    """Of the torch backend, whose work can be seen from here; others are seen in tests/triton and bench/cpu.py."""
    clauses = f"stateless {clauses.replace('storage ring', '')}" if stateless else clauses
    costs = [_prefill_cost(clauses, width) for width in (1024, 4096)]
    for small, large in zip(*costs, strict=True):
        assert large < 6 * small, f"four times the columns: {costs}"


def _prefill_cost(clauses: str, width: int) -> tuple[int, int]:
    cache = make_cache(f"dim 64 {clauses}", 1, backend="torch")
    k = torch.randn(1, 1, width, 64, device=DEVICE)
    q = torch.randn(1, 2, width, 64, device=DEVICE)
    with Copied() as copied:
        cache.append_window(k, k).attend(q)
    assert copied.products
    return copied.bytes, copied.products


def test_heads_are_packed_not_repeated(backend):
    """With 8 query heads a kv head no copy of the keys is 8 times as large."""
    cache = make_cache(f"heads query 8 kv 1 dim {DIM} window full", 1, backend=backend)
    k = torch.randn(1, 1, 1000, DIM, device=DEVICE)
    cache.append_window(k, k)
    with Copied() as copied:
        cache.append_decode(k[:, :, :1], k[:, :, :1]).attend(
            torch.randn(1, 8, 1, DIM, device=DEVICE)
        )
    assert copied.bytes < math.prod(k.shape) * 4 // 2


@pytest.mark.parametrize(
    "clauses", ["window 16 storage ring", "window 12 sinks 4 storage ring slack 2", "chunk 16"]
)
def test_a_held_read_costs_what_is_overwritten_at_most(clauses, backend):
    """However long it is held, no more than the planes it looks at."""
    cache = make_cache(clauses, 1, backend=backend)
    k = torch.randn(1, 1, 20, 8, device=DEVICE)
    cache.append_window(k, k)
    one = k[:, :, :1]
    reads = [cache.append_decode(one, one), cache.append_window(k[:, :, :2], k[:, :, :2])]
    for _ in range(100):
        cache.append_decode(one, one)
    for read in reads:
        held = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
            for t in storage_tensors(read)
        }
        assert sum(held.values()) < 4 * cache.capacity * cache.bytes_per_token + 4096
    assert cache.nbytes == cache.capacity * cache.bytes_per_token


def test_a_stateless_append_copies_nothing(backend):
    cache = make_cache("stateless window 4", 1, backend=backend)
    k = torch.randn(1, 1, 20, 8, device=DEVICE)
    with Copied() as copied:
        read = cache.append_window(k, k)
    assert copied.bytes == 0
    assert k.data_ptr() in {t.data_ptr() for t in storage_tensors(read)}
