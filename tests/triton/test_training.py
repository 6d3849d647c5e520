"""Stateless policies: forward and backward against float64 autograd, with NaN in padding; the same bits every time."""

import math
from types import SimpleNamespace

import pytest
import torch

from kvgen import model
from tests.contract.harness import policy_of
from tests.triton.rig import emitted

TILE = 32  # rows and keys a step under the interpreter

CASES = {
    "full": "heads query 4 kv 2 dim 16",
    "window": "heads query 3 kv 1 dim 32 window 20",
    "window over several tiles": "heads query 2 kv 1 dim 16 window 70",
    "chunk": "heads query 2 kv 1 dim 16 chunk 40",
    "window in chunk": "heads query 2 kv 1 dim 16 window 20 chunk 50",
    "sinks": "heads query 4 kv 2 dim 16 window 20 sinks 5",
    "sinks over several tiles": "heads query 2 kv 1 dim 16 window 20 sinks 40",
    "softcap": "heads query 2 kv 1 dim 16 window 33 softcap 1.5",
    "sink logits": "heads query 4 kv 2 dim 16 window 20 sink_logits",
    "everything": "heads query 6 kv 2 dim key 24 value 16 window 20 sinks 3 softcap 2 sink_logits",
    "dim 80": "heads query 2 kv 1 dim 80 window 30",
}


class Training:
    """Random tensors of one policy, right-padded with NaN, and both ways to attend them."""

    def __init__(
        self, clauses: str, columns: int, lengths: list[int], dtype: torch.dtype = torch.float32
    ):
        clauses = f"{clauses} stateless padding right"
        self.policy, self.lengths, self.columns = policy_of(clauses), lengths, columns
        stem = emitted(clauses)
        self.kernels = __import__(f"{stem}.tested_triton", fromlist=["x"]).TestedTriton(
            len(lengths), dtype, torch.device("cpu")
        )
        columns_type = __import__(f"{stem}._columns", fromlist=["x"]).Columns
        zeros = (0,) * len(lengths)
        self.place = columns_type(zeros, zeros, tuple(lengths), columns)
        heads, random = self.policy.heads, torch.Generator().manual_seed(1)
        shapes = [
            (heads.query, heads.key_dim),
            (heads.kv, heads.key_dim),
            (heads.kv, heads.value_dim),
        ]
        self.leaves = [
            torch.randn(len(lengths), *s[:1], columns, s[1], generator=random).to(dtype)
            for s in shapes
        ]
        self.logits = (
            torch.randn(heads.query, generator=random) if self.policy.scores.sink_logits else None
        )
        self.weights = torch.randn(
            len(lengths), heads.query, columns, heads.value_dim, generator=random
        )
        ends = torch.tensor(lengths)[:, None]
        self.real = (torch.arange(columns) < ends)[:, None, :, None]

    @property
    def scale(self) -> float:
        return self.policy.scores.scale or self.policy.heads.key_dim**-0.5

    def emitted(self):
        """out, lse and the gradients, from the kernels."""
        q, k, v = (x.masked_fill(~self.real, math.nan).requires_grad_() for x in self.leaves)
        logits = None if self.logits is None else self.logits.clone().requires_grad_()
        read = SimpleNamespace(columns=self.place, new=(k, v))
        out, lse = self.kernels.attend(read, q, self.scale, logits)
        seen = lse.masked_fill(~self.real[..., 0], 0)
        ((out * self.weights).sum() + seen.sum()).backward()
        return out, lse, [x.grad for x in (q, k, v, logits) if x is not None]

    def judged(self):
        q, k, v = (x.double().requires_grad_() for x in self.leaves)
        logits = None if self.logits is None else self.logits.double().requires_grad_()
        group, retention, n = self.policy.heads.group, self.policy.retention, self.columns
        seen = torch.tensor([[model.visible(retention, p, j) for j in range(n)] for p in range(n)])
        scores = q @ k.repeat_interleave(group, 1).mT * self.scale
        if cap := self.policy.scores.softcap:
            scores = cap * torch.tanh(scores / cap)
        scores = scores.masked_fill(~seen, -math.inf)
        if logits is not None:
            sinks = logits[None, :, None, None].expand(scores.shape[0], -1, n, 1)
            lse = torch.logsumexp(torch.cat([scores, sinks], 3), 3)
        else:
            lse = torch.logsumexp(scores, 3)
        out = (scores - lse[..., None]).exp() @ v.repeat_interleave(group, 1)
        out, lse = out.masked_fill(~self.real, 0), lse.masked_fill(~self.real[..., 0], 0)
        ((out * self.weights).sum() + lse.sum()).backward()
        return out, lse, [x.grad for x in (q, k, v, logits) if x is not None]


def check(training, tolerance):
    out, lse, gradients = training.emitted()
    want, want_lse, wanted = training.judged()
    assert (lse[~training.real[..., 0].expand_as(lse)] == -math.inf).all()
    close(out, want, tolerance)
    close(lse.masked_fill(~training.real[..., 0], 0), want_lse, tolerance)
    for found, judged in zip(gradients, wanted, strict=True):
        close(found, judged, 5 * tolerance)


def close(found, want, tolerance):
    error = (found.double() - want).abs().max().item()
    assert error <= tolerance * max(1.0, want.abs().max().item()), error


@pytest.mark.parametrize("clauses", CASES.values(), ids=CASES.keys())
def test_gradients(clauses):
    check(Training(clauses, 90, [90]), 2e-5)


@pytest.mark.parametrize("ratio", [1, 3, 5, 6, 7, 8, 9, 12, 16])
def test_gradients_of_any_ratio_of_heads(ratio):
    check(Training(f"heads query {ratio} kv 1 dim 16 window 20", 24, [24]), 2e-5)


@pytest.mark.parametrize("dims", ["64", "96", "128", "256", "key 64 value 16"])
def test_gradients_of_any_dim(dims):
    check(Training(f"heads query 2 kv 1 dim {dims} window 20 sinks 2", 40, [40]), 2e-5)


@pytest.mark.parametrize("window", [1, TILE - 1, TILE, TILE + 1])
def test_gradients_of_windows_around_tile_edges(window):
    check(
        Training(f"heads query 1 kv 1 dim 16 window {window}", 2 * TILE + 1, [2 * TILE + 1]), 2e-5
    )


def test_gradients_of_ragged_rows():
    check(Training(CASES["everything"], 70, [70, 33, 0, 1]), 2e-5)


def test_gradients_in_float16():
    check(Training(CASES["sinks"], 50, [50], torch.float16), 5e-3)


def test_the_same_bits_every_time():
    training = Training(CASES["everything"], 50, [50, 20])
    first, second = training.emitted(), training.emitted()
    for a, b in zip(first[2], second[2], strict=True):
        assert torch.equal(a, b)
