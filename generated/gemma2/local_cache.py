# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body 99b6192a189a codegen 1
"""LocalCache: the last 4096 tokens of each row, in a ring.

    policy Local {                 # gemma2.kv:8
        heads query 32 kv 16       # gemma2.kv:9
        dim 128                    # gemma2.kv:10
        dtype bf16                 # gemma2.kv:11
        scale 0.08333333333333333  # gemma2.kv:12
        softcap 50                 # gemma2.kv:13
        window 4096                # gemma2.kv:14
        storage ring slack 7       # gemma2.kv:15
        padding left right         # gemma2.kv:16
        trim guarded bypass 7      # gemma2.kv:17
    }

Position p lives in slot p % RING.
A row is two integers: its next position, `offset`, and the oldest one that was not overwritten, `oldest`.
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
from .local_policy import (
    BYPASS,
    RING,
    SCALE,
    SLACK,
    SLOTS,
    first_seen,
    runs,
)


class LocalRead(StoredRead):
    """What the columns of one append to a LocalCache see."""

    __slots__ = ()
    query_heads, key_dim = 32, 128

    def attend(
        self,
        q: torch.Tensor,
        scale: float | None = None,
        return_lse: bool = False,
        sink_logits: torch.Tensor | None = None,
    ) -> Any:
        """Softmax attention of queries q [B, 32, L, 128], of the cache's dtype or float32, to
        [B, 32, L, 128] in q's dtype.

        `scale` None: the policy's scale. With `return_lse` also the natural logarithm of the softmax's
        denominator, float32 [B, 32, L]. `sink_logits` must be None.
        Raises ValueError for a wrong q, scale or sink_logits and RuntimeError once the read is closed.
        """
        self._check(q, scale)
        if sink_logits is not None:
            raise ValueError("sink_logits must be None: the policy does not declare `sink_logits`")
        scale = SCALE if scale is None else scale
        out, lse = self.kernels.attend(self, q, scale, sink_logits, return_lse)
        return (out, lse) if return_lse else out


class LocalCache(StatefulCache):
    """The last 4096 tokens of each row, in a ring."""

    query_heads, kv_heads = 32, 16
    key_dim, value_dim = 128, 128
    window = Constant(4096)
    sinks = Constant(0)
    chunk = Constant(None)
    capacity = Constant(SLOTS)

    bypass_tokens = BYPASS
    DTYPE = torch.bfloat16
    STORED = "ring of 4103 slots"
    SCORES = "query 32, scale 0.08333333333333333, softcap 50.0"
    KERNELS = {
        "torch": "local_torch.LocalTorch",
        "cpu": "local_cpu.LocalCpu",
        "triton": "local_triton.LocalTriton",
    }
    PER_ROW = ("_offsets", "_oldest", "_verified")

    @property
    def nbytes(self) -> int:
        """Bytes of stored and of waiting keys and values."""
        waiting = self._waiting[0] if self._waiting else ()
        return self._storage.nbytes + sum(x.nbytes for x in waiting)

    def _start(self) -> None:
        super()._start()
        # ((keys, values), columns) beside the ring, written to it at the next append
        self._waiting: Any = None

    def _slots(self) -> int:
        return SLOTS

    @property
    def _oldest(self) -> tuple[int, ...]:
        """The oldest position of each row that was not overwritten: appends overwrite what is RING before their end."""
        ends = self._offsets
        if self._waiting is not None:
            ends = map(min, ends, self._waiting[1].firsts)
        return tuple([max(oldest, end - RING) for oldest, end in zip(self._kept, ends)])

    @_oldest.setter
    def _oldest(self, oldest: tuple[int, ...]) -> None:
        self._kept = oldest

    # -- appends

    def append_decode(self, k: torch.Tensor, v: torch.Tensor) -> LocalRead:
        """One token a row: k [B, 16, 1, 128], v [B, 16, 1, 128]."""
        if is_dynamo_compiling():
            return self._compiled(k, v, True)
        if self._prefill is not None:
            self._settled("append_decode")
        self._check(k, v, 1)
        if self._waiting is not None:
            self._commit()
        columns = Step.after(self._offsets)
        self._kernels.write(self._storage, k, v, columns)
        self._offsets = columns.ends
        self._verified = (0,) * self._batch_size
        return self._storage.lend(LocalRead(self, columns, None))

    def append_window(self, k: torch.Tensor, v: torch.Tensor) -> LocalRead:
        """L columns a row: k [B, 16, L, 128], v [B, 16, L, 128].

        Up to 8 columns are written in place, up to 4103 wait beside the ring until the next append.
        """
        if is_dynamo_compiling():
            return self._compiled(k, v, False)
        width = columns_of(k, self.key_dim)
        self._check(k, v, width)
        columns = self._coming(width)
        verified = self._verify_tokens(columns)
        append = self._append_in_place if width <= SLACK + 1 else self._append_beside
        read = append(k, v, columns)
        self._verified = verified
        return read

    def _append_in_place(self, k: torch.Tensor, v: torch.Tensor, columns: Columns) -> LocalRead:
        """No query of these columns sees a token that they overwrite."""
        if self._waiting is not None:
            self._commit()
        self._kernels.write(self._storage, k, v, columns)
        self._advance(columns)
        return self._storage.lend(LocalRead(self, columns, None))

    def _append_beside(self, k: torch.Tensor, v: torch.Tensor, columns: Columns) -> LocalRead:
        """The columns wait beside the ring, whose tokens they would overwrite, until the next append."""
        self._commit()
        new = tuple(x.clone(memory_format=torch.contiguous_format) for x in (k, v))
        if columns.padded:
            padding = columns.padding(self._device)
            new = tuple(x.masked_fill_(padding, 0) for x in new)
        read = LocalRead(self, columns, new)
        self._storage.lend(read)
        self._waiting = new, columns
        self._advance(columns)
        if columns.width > RING:  # more than the ring holds: only the newest, and now
            self._commit()
        return read

    def _commit(self) -> None:
        """Write the columns beside the ring into it, those that no trim took back."""
        if self._waiting is not None:
            (k, v), columns = self._waiting
            self._kernels.write(self._storage, k, v, columns._replace(ends=self._offsets))
            self._waiting = None

    def _advance_by(self, steps: tuple[int, ...]) -> None:
        if self._waiting is not None:
            raise RuntimeError(
                "a graph was replayed while columns of an append_window waited beside the ring:"
                " append once outside the graph first, then reset this cache"
            )
        super()._advance_by(steps)

    # -- taking tokens back

    def is_trimmable(self, n: Any = 1) -> bool:
        """Whether, with the last n tokens of each row gone, every later read is what it would have been without them.

        `n` is a whole number, or a list of one a row.
        """
        counts = self._counts(n, "n")
        return not any(counts) or (self._prefill is None and self._exact_without(counts))

    def _check_trim(self, n: Any, bypass: bool) -> tuple[int, ...]:
        """The counts, row by row, if the trim is allowed. `bypass` takes back up to BYPASS tokens of a verify window unasked."""
        counts = self._counts(n, "n")
        if bypass:
            self._check_bypass(counts)
        elif not self._exact_without(counts):
            raise RuntimeError(
                f"{list(counts)} tokens cannot be taken back from rows at {list(self._offsets)}:"
                " what later queries would see was overwritten; ask is_trimmable(n) first"
            )
        return counts

    def _exact_without(self, counts: tuple[int, ...]) -> bool:
        """Whether each row, with so many tokens gone, still holds all that its later queries see."""
        return all(
            n == 0 or self._holds(oldest, offset - n)
            for n, offset, oldest in zip(counts, self._offsets, self._oldest)
        )

    @staticmethod
    def _holds(oldest: int, offset: int) -> bool:
        """Whether a row that kept [oldest, offset) has all that queries from `offset` on see of it."""
        return offset >= 0 and min(oldest, offset) <= first_seen(offset)

    def _take_back(self, counts: tuple[int, ...]) -> None:
        ends = tuple(offset - count for offset, count in zip(self._offsets, counts))
        stored = self._offsets if self._waiting is None else self._waiting[1].firsts
        taken = tuple(min(end, tokens) for end, tokens in zip(ends, stored))
        self._storage.erase(Columns(taken, taken, stored, 0), runs)
        self._oldest = tuple(min(oldest, end) for oldest, end in zip(self._oldest, ends))
        self._offsets = ends
        self._verified = tuple(max(0, left - count) for left, count in zip(self._verified, counts))

    def _check_bypass(self, counts: tuple[int, ...]) -> None:
        if any(count > left for count, left in zip(counts, self._verified)):
            raise RuntimeError(
                f"bypass takes back up to {BYPASS} tokens a row of the append_window just done:"
                f" {list(self._verified)} now, asked {list(counts)}"
            )

    def _verify_tokens(self, columns: Columns) -> tuple[int, ...]:
        """How many tokens of an append_window bypass may take back: none of a prepared prefill."""
        if self._prefill is not None:
            return (0,) * self._batch_size
        return tuple(min(BYPASS, tokens) for tokens in columns.tokens())

    def _after_row_change(self) -> None:
        self._verified = (0,) * self._batch_size

    # -- rows and state

    def _select_rows(self, rows: list[int]) -> Any:
        other = super()._select_rows(rows)
        if self._waiting is not None:
            (k, v), columns = self._waiting
            columns = Columns(*(tuple(x[row] for row in rows) for x in columns[:3]), columns.width)
            other._waiting = (k[rows], v[rows]), columns
        return other

    def _written(self) -> Any:
        if self._waiting is None:
            return self
        cache = self.clone()
        cache._commit()
        return cache

    def _saved(self) -> tuple[str, ...]:
        return ("_offsets", "_oldest")

    def _held_runs(self, row: int) -> list[tuple[int, int, int]]:
        return runs(self._oldest[row], self._offsets[row])

    def _check_saved(self) -> None:
        for offset, oldest in zip(self._offsets, self._kept):
            if not max(0, offset - RING) <= oldest <= min(offset, first_seen(offset)):
                raise ValueError(
                    f"the state is damaged: no row is at {offset}, oldest {oldest}; save it again"
                )
