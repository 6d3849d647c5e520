"""A policy of a few clauses on the cpu backend, driven beside its own history: answers against float64 and `model.visible`."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import torch

from kvgen import model
from kvgen.ir import CachePolicy
from kvgen.loading import load_text
from kvgen.pipeline import check_text

TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}  # contract section 3
CLAUSES = {
    "heads": "query 4 kv 2",
    "dim": "16",
    "dtype": "f32",
    "window": "20",
    "storage": "ring slack 3",
}


def policy_text(**clauses: str | None) -> str:
    """A policy `Local`; None leaves a clause of CLAUSES out."""
    lines = [
        f"    {word} {rest}" for word, rest in {**CLAUSES, **clauses}.items() if rest is not None
    ]
    return "\n".join(["kvgen 1", "policy Local {", *lines, "    padding left right", "}", ""])


@functools.cache
def package(text: str):
    return load_text(text, "rig")


@functools.cache
def policy_of(text: str) -> CachePolicy:
    program = check_text(text, "rig.kv").program
    assert program is not None
    return program.policy("Local")


@dataclass
class Rig:
    """A cache, and all that was appended to each of its rows."""

    text: str
    rows: int = 1
    dtype: torch.dtype = torch.float32
    seed: int = 0
    spread: float = 1.0  # of the random numbers
    tolerance: float | None = None
    keys: list[torch.Tensor] = field(init=False)
    values: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.policy = policy_of(self.text)
        self.cache = package(self.text).LocalCache(self.rows, dtype=self.dtype, backend="cpu")
        self.random = torch.Generator().manual_seed(self.seed)
        heads = self.policy.heads
        self.keys = [
            torch.empty(heads.kv, 0, heads.key_dim, dtype=self.dtype) for _ in range(self.rows)
        ]
        self.values = [
            torch.empty(heads.kv, 0, heads.value_dim, dtype=self.dtype) for _ in range(self.rows)
        ]

    def numbers(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return (torch.randn(*shape, generator=self.random) * self.spread).to(dtype or self.dtype)

    def tokens(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        heads = self.policy.heads
        return self.numbers(self.rows, heads.kv, width, heads.key_dim), self.numbers(
            self.rows, heads.kv, width, heads.value_dim
        )

    def queries(self, width: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return self.numbers(
            self.rows, self.policy.heads.query, width, self.policy.heads.key_dim, dtype=dtype
        )

    def window(self, width: int) -> None:
        """Append `width` tokens a row, attend, compare."""
        self.check(self.append(*self.tokens(width)), self.queries(width))

    def decode(self, steps: int = 1) -> None:
        for _ in range(steps):
            k, v = self.tokens(1)
            read = self.cache.append_decode(k, v)
            self.remember(k, v, [(0, 1)] * self.rows)
            self.check(read, self.queries(1))

    def append(self, k: torch.Tensor, v: torch.Tensor, real: list[tuple[int, int]] | None = None):
        """Append columns of which row r has real ones in real[r]; returns the read."""
        read = self.cache.append_window(k, v)
        self.remember(k, v, real or [(0, k.shape[2])] * self.rows)
        return read

    def remember(self, k: torch.Tensor, v: torch.Tensor, real: list[tuple[int, int]]) -> None:
        self.real = real
        for row, (first, end) in enumerate(real):
            self.keys[row] = torch.cat([self.keys[row], k[row, :, first:end]], 1)
            self.values[row] = torch.cat([self.values[row], v[row, :, first:end]], 1)

    def forget(self, tokens: int) -> None:
        self.cache.trim(tokens)
        for row in range(self.rows):
            self.keys[row] = self.keys[row][:, : self.keys[row].shape[1] - tokens]
            self.values[row] = self.values[row][:, : self.values[row].shape[1] - tokens]

    def check(
        self,
        read,
        q: torch.Tensor,
        sink_logits: torch.Tensor | None = None,
        scale: float | None = None,
    ) -> None:
        extra = {} if sink_logits is None else {"sink_logits": sink_logits}
        out, lse = read.attend(q, scale, return_lse=True, **extra)
        assert out.dtype is q.dtype
        want_out, want_lse = self.answer(q, sink_logits, scale)
        limit = (self.tolerance or TOLERANCE[self.dtype]) * max(1.0, want_out.abs().max().item())
        assert (out.double() - want_out).abs().max().item() <= limit
        assert torch.equal(lse == -math.inf, want_lse == -math.inf)
        seen = want_lse > -math.inf
        gap = (lse.double() - want_lse)[seen].abs()
        limit = (
            TOLERANCE[self.dtype] * max(1.0, want_lse[seen].abs().max().item()) if seen.any() else 0
        )
        assert not gap.numel() or gap.max().item() <= limit

    def answer(
        self, q: torch.Tensor, sink_logits: torch.Tensor | None, scale: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The columns' answers in float64: out [B, Hq, L, Dv] and lse [B, Hq, L]."""
        heads, scores = self.policy.heads, self.policy.scores
        scale = scale if scale is not None else scores.scale or heads.key_dim**-0.5
        out = torch.zeros(self.rows, heads.query, q.shape[2], heads.value_dim, dtype=torch.float64)
        lse = torch.full((self.rows, heads.query, q.shape[2]), -math.inf, dtype=torch.float64)
        for row, (first, end) in enumerate(self.real):
            if first == end:
                continue
            k, v = (
                x[row].double().repeat_interleave(heads.group, 0) for x in (self.keys, self.values)
            )
            found = (q[row, :, first:end].double() @ k.mT) * scale
            if scores.softcap:
                found = scores.softcap * torch.tanh(found / scores.softcap)
            found = found.masked_fill(~self.seen(k.shape[1], end - first), -math.inf)
            total = found.logsumexp(-1)
            if sink_logits is not None:
                total = torch.logaddexp(total, sink_logits.double()[:, None])
            out[row, :, first:end] = (found - total[..., None]).exp() @ v
            lse[row, :, first:end] = total
        return out, lse

    def seen(self, keys: int, queries: int) -> torch.Tensor:
        retention = self.policy.retention
        rows = [
            [model.visible(retention, keys - queries + q, k) for k in range(keys)]
            for q in range(queries)
        ]
        return torch.tensor(rows)
