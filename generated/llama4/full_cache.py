# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body d851e561ae75 codegen 1
"""FullCache: all tokens of each row.

    policy Full {            # llama4.kv:18
        heads query 40 kv 8  # llama4.kv:19
        dim 128              # llama4.kv:20
        dtype bf16           # llama4.kv:21
        storage contiguous   # llama4.kv:22
        padding left right   # llama4.kv:23
        trim guarded         # llama4.kv:24
    }

Position p lives in slot p.
A row is one integer: its next position, `offset`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ._cache import Constant
from ._checks import columns_of
from ._columns import Columns, Step
from ._reads import StoredRead
from ._stateful import StatefulCache
from .full_policy import (
    SCALE,
    runs,
)


class FullRead(StoredRead):
    """What the columns of one append to a FullCache see."""

    __slots__ = ()
    query_heads, key_dim = 40, 128

    def attend(
        self,
        q: torch.Tensor,
        scale: float | None = None,
        return_lse: bool = False,
        sink_logits: torch.Tensor | None = None,
    ) -> Any:
        """Softmax attention of queries q [B, 40, L, 128], of the cache's dtype or float32, to
        [B, 40, L, 128] in q's dtype.

        `scale` None: 1 / sqrt(128). With `return_lse` also the natural logarithm of the softmax's
        denominator, float32 [B, 40, L]. `sink_logits` must be None.
        Raises ValueError for a wrong q, scale or sink_logits and RuntimeError once the read is closed.
        """
        self._check(q, scale)
        if sink_logits is not None:
            raise ValueError("sink_logits must be None: the policy does not declare `sink_logits`")
        scale = SCALE if scale is None else scale
        out, lse = self.kernels.attend(self, q, scale, sink_logits, return_lse)
        return (out, lse) if return_lse else out


class FullCache(StatefulCache):
    """All tokens of each row."""

    query_heads, kv_heads = 40, 8
    key_dim, value_dim = 128, 128
    window = Constant(None)
    sinks = Constant(0)
    chunk = Constant(None)
    capacity = Constant(None)

    DTYPE = torch.bfloat16
    SCORES = "query 40"
    STORED = "contiguous"
    KERNELS = {
        "torch": "full_torch.FullTorch",
        "cpu": "full_cpu.FullCpu",
        "triton": "full_triton.FullTriton",
    }
    PER_ROW = ("_offsets",)

    def _slots(self) -> int:
        """What the rows need, rounded up: storage grows by a few tokens at a time, and no further."""
        return -(-max(self._offsets) // 32) * 32

    def reset(self) -> None:
        """Forget all tokens and give their memory back. Reads that are held keep theirs."""
        self._start()
        self._storage = self._new_storage(self._batch_size)

    # -- appends

    def append_decode(self, k: torch.Tensor, v: torch.Tensor) -> FullRead:
        """One token a row: k [B, 8, 1, 128], v [B, 8, 1, 128]."""
        if is_dynamo_compiling():
            return self._compiled(k, v, True)
        if self._prefill is not None:
            self._settled("append_decode")
        self._check(k, v, 1)
        columns = Step.after(self._offsets)
        return self._append(k, v, columns)

    def append_window(self, k: torch.Tensor, v: torch.Tensor) -> FullRead:
        """L columns a row: k [B, 8, L, 128], v [B, 8, L, 128]."""
        if is_dynamo_compiling():
            return self._compiled(k, v, False)
        width = columns_of(k, self.key_dim)
        self._check(k, v, width)
        columns = self._coming(width)
        return self._append(k, v, columns)

    def _append(self, k: torch.Tensor, v: torch.Tensor, columns: Columns) -> FullRead:
        if max(columns.ends) > self._storage.slots:
            self._storage.resized(-(-max(columns.ends) // 32) * 32)
        self._kernels.write(self._storage, k, v, columns)
        self._advance(columns)
        return self._storage.lend(FullRead(self, columns, None))

    # -- taking tokens back

    def is_trimmable(self, n: Any = 1) -> bool:
        """Whether, with the last n tokens of each row gone, every later read is what it would have been without them.

        `n` is a whole number, or a list of one a row.
        """
        counts = self._counts(n, "n")
        return not any(counts) or (self._prefill is None and self._exact_without(counts))

    def _check_trim(self, n: Any, bypass: bool) -> tuple[int, ...]:
        """The counts, row by row, if the trim is allowed. `bypass` is for policies that declare it."""
        counts = self._counts(n, "n")
        if bypass:
            self._check_bypass(counts)
        elif not self._exact_without(counts):
            raise RuntimeError(
                f"{list(counts)} tokens cannot be taken back from rows at {list(self._offsets)}:"
                " a row has fewer; take back at most its tokens"
            )
        return counts

    def _exact_without(self, counts: tuple[int, ...]) -> bool:
        """Nothing is ever overwritten: whatever a row has can go."""
        return all(count <= offset for count, offset in zip(counts, self._offsets))

    def _take_back(self, counts: tuple[int, ...]) -> None:
        ends = tuple(offset - count for offset, count in zip(self._offsets, counts))
        self._storage.erase(Columns(ends, ends, self._offsets, 0), runs)
        self._offsets = ends
        if self._storage.slots - max(ends) > 63:
            self._storage.resized(self._slots())

    def _check_bypass(self, counts: tuple[int, ...]) -> None:
        if any(counts):
            raise RuntimeError(
                "bypass is for policies that declare `trim guarded bypass G`; declare it, or leave bypass out"
            )

    # -- rows and state

    def _held_runs(self, row: int) -> list[tuple[int, int, int]]:
        return runs(0, self._offsets[row])

    def _check_saved(self) -> None:
        """Any offsets can be of such a cache."""
