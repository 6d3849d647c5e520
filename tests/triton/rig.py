"""A policy's Triton kernels without its cache: planes full of NaN, places by hand, and float64 to judge the answers."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from triton.runtime.interpreter import InterpreterBuilder

from kvgen import model
from kvgen.pipeline import compile_text
from tests.contract.harness import TOLERANCE, import_files, policy_of, program_text

SLOTS = 400  # of storage without a ring
ELEMENTS = {torch.float32: "fp32", torch.float16: "fp16"}


@contextmanager
def counted_loads() -> Iterator[dict[str, int]]:
    """{element type: how many elements kernels load meanwhile}. A masked lane loads nothing."""
    loads: dict[str, int] = {}
    original = InterpreterBuilder.create_masked_load

    def count(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        kind = str(pointers.dtype.element_ty)
        loads[kind] = loads.get(kind, 0) + int(mask.data.sum())
        return original(self, pointers, mask, other, *rest)

    InterpreterBuilder.create_masked_load = count
    try:
        yield loads
    finally:
        InterpreterBuilder.create_masked_load = original


_stems = (f"kvgen_triton_{i}" for i in itertools.count())


@functools.cache
def emitted(clauses: str) -> str:
    """The name of a package with the policy Tested, imported."""
    stem = next(_stems)
    import_files(dict(compile_text(program_text({"Tested": clauses}), stem).files), stem)
    return stem


class Rig:
    """Rows of one policy. Unused slots, padding columns and padding queries hold NaN from the start."""

    def __init__(
        self, clauses: str, rows: int = 1, dtype: torch.dtype = torch.float32, seed: int = 0
    ) -> None:
        self.policy, self.dtype, self.rows = policy_of(clauses), dtype, rows
        stem = emitted(clauses)
        self.columns_type = importlib.import_module(f"{stem}._columns").Columns
        kernels = importlib.import_module(f"{stem}.tested_triton").TestedTriton
        self.kernels = kernels(rows, dtype, torch.device("cpu"))
        heads = self.policy.heads
        slots = model.capacity(self.policy) or SLOTS
        self.keys = torch.full((rows, heads.kv, slots, heads.key_dim), math.nan, dtype=dtype)
        self.values = torch.full((rows, heads.kv, slots, heads.value_dim), math.nan, dtype=dtype)
        storage = importlib.import_module(f"{stem}._storage").Storage
        self.storage = storage(self.keys, self.values)
        self.random = torch.Generator().manual_seed(seed)
        self.stored = [
            [torch.zeros(heads.kv, 0, dim, dtype=dtype) for dim in self._dims] for _ in range(rows)
        ]
        self.offsets = [0] * rows

    @property
    def _dims(self) -> tuple[int, int]:
        return self.policy.heads.key_dim, self.policy.heads.value_dim

    @property
    def in_place(self) -> int:
        """Columns that may stand in storage at once."""
        return getattr(self.policy.storage, "slack_slots", SLOTS) + 1

    # -- appends

    def append(
        self, width: int, left: list[int] | None = None, tokens: list[int] | None = None
    ) -> Any:
        """Random columns, in storage, or beside the ring when they are many. Returns the read."""
        left = left or [0] * self.rows
        tokens = [width - skip for skip in left] if tokens is None else tokens
        k, v = (self._columns(width, left, tokens, which) for which in (0, 1))
        firsts = tuple(self.offsets)
        starts = tuple(first - skip for first, skip in zip(firsts, left, strict=True))
        ends = tuple(first + n for first, n in zip(firsts, tokens, strict=True))
        columns = self.columns_type(starts, firsts, ends, width)
        self.offsets = list(ends)
        beside = width > self.in_place
        if not beside:
            self.kernels.write(self.storage, k, v, columns)
        new = (k.contiguous(), v.contiguous()) if beside else None
        return self.read(columns, new=new, kv=(k, v))

    def read(self, columns: Any, new: Any = None, kv: Any = None) -> Any:
        """What a kernel looks at."""
        stored = {"keys": self.keys, "values": self.values, "planes": lambda: self.storage}
        return SimpleNamespace(columns=columns, new=new, kv=kv, **stored)

    def commit(self, read: Any) -> None:
        """Write what waits beside the ring."""
        if read.new is not None:
            self.kernels.write(self.storage, *read.kv, read.columns)

    def fill(self, tokens: int) -> None:
        """A history of so many tokens a row, by appends that need not be attended."""
        self.commit(self.append(tokens))

    def _columns(self, width: int, left: list[int], tokens: list[int], which: int) -> torch.Tensor:
        """[B, H, L, D] of which columns come before heads in memory, as models make them."""
        dim, heads = self._dims[which], self.policy.heads.kv
        x = torch.full((self.rows, width, heads, dim), math.nan, dtype=self.dtype).transpose(1, 2)
        for row, (skip, n) in enumerate(zip(left, tokens, strict=True)):
            fresh = torch.randn(heads, n, dim, generator=self.random).to(self.dtype)
            x[row, :, skip : skip + n] = fresh
            self.stored[row][which] = torch.cat([self.stored[row][which], fresh], 1)
        return x

    # -- reads

    def check(
        self, read: Any, scale: float | None = None, query_dtype: torch.dtype | None = None
    ) -> int:
        """Attend and compare with float64; how many keys of a head the columns of all rows see together."""
        heads, columns = self.policy.heads, read.columns
        q = self._queries(columns).to(query_dtype or self.dtype)
        logits = (
            torch.randn(heads.query, generator=self.random)
            if self.policy.scores.sink_logits
            else None
        )
        scale = scale or self.policy.scores.scale or heads.key_dim**-0.5
        out, lse = self.kernels.attend(read, q, scale, logits)
        assert out.dtype is q.dtype and lse.dtype is torch.float32
        return sum(
            self._check_row(row, columns, q, scale, logits, out, lse) for row in range(self.rows)
        )

    def _queries(self, columns: Any) -> torch.Tensor:
        heads = self.policy.heads
        q = torch.full((self.rows, columns.width, heads.query, heads.key_dim), math.nan).transpose(
            1, 2
        )
        for row, (start, first, end) in enumerate(zip(*columns[:3], strict=True)):
            fresh = torch.randn(heads.query, end - first, heads.key_dim, generator=self.random)
            q[row, :, first - start : end - start] = fresh
        return q

    def _check_row(self, row, columns, q, scale, logits, out, lse) -> int:
        start, first, end = (numbers[row] for numbers in columns[:3])
        real = slice(first - start, end - start)
        padding = torch.ones(columns.width, dtype=torch.bool)
        padding[real] = False
        assert (out[row][:, padding] == 0).all()
        assert (lse[row][:, padding] == -math.inf).all()
        if first == end:
            return 0
        retention, group = self.policy.retention, self.policy.heads.group
        seen = torch.tensor(
            [[model.visible(retention, p, j) for j in range(end)] for p in range(first, end)]
        )
        k, v = (x[:, :end].double().repeat_interleave(group, 0) for x in self.stored[row])
        scores = q[row][:, real].double() @ k.mT * scale
        if cap := self.policy.scores.softcap:
            scores = cap * torch.tanh(scores / cap)
        scores = scores.masked_fill(~seen, -math.inf)
        if logits is None:
            total = torch.logsumexp(scores, 2)
        else:
            sink = logits.double()[:, None, None].expand(-1, end - first, 1)
            total = torch.logsumexp(torch.cat([scores, sink], 2), 2)
        self._close(out[row][:, real], (scores - total[..., None]).exp() @ v)
        self._close(lse[row][:, real], total)
        return int(seen.any(0).sum())

    def _close(self, found: torch.Tensor, want: torch.Tensor) -> None:
        error = (found.double() - want).abs().max().item()
        assert error <= TOLERANCE[self.dtype] * max(1.0, want.abs().max().item()), error
