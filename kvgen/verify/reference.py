# pyright: basic
"""The judge: the contract executed on lists, row by row, with the rules of `kvgen.model` and no storage.

A token is whatever is handed in. A `ReferenceCache` has the public calls of a generated cache, says what each query sees
and refuses what the contract refuses.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch

from kvgen import model
from kvgen.ir import CachePolicy, Fixed, Retention
from kvgen.verify.float64 import attention


class RefusedError(ValueError, RuntimeError):
    """Refused, and the contract does not say with which of the two errors."""


@dataclass(frozen=True, slots=True)
class Row:
    """Every token of a row from position 0, also those that its storage has lost."""

    tokens: tuple = ()
    state: model.Row = model.Row()  # noqa: RUF009  frozen


@dataclass(frozen=True, slots=True)
class Prefill:
    """What is still to come of each row."""

    left: tuple[int, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReferenceRead:
    """`queries[r][i]`: the position of column i in row r, None if it is padding. `tokens[r]`: the row as it was."""

    policy: CachePolicy
    queries: tuple[tuple[int | None, ...], ...]
    tokens: tuple[tuple, ...]

    def sees(self) -> list[list[list | None]]:
        """The visible tokens of each column of each row, oldest first; None for padding."""
        return [
            [None if p is None else self._visible(tokens, p) for p in queries]
            for queries, tokens in zip(self.queries, self.tokens, strict=True)
        ]

    def _visible(self, tokens: tuple, query: int) -> list:
        retention = self.policy.retention
        return [tokens[key] for key in range(query + 1) if model.visible(retention, query, key)]

    def attend(self, q, keys, values, scale=None, sink_logits=None, only=None):
        """Of tokens that are indices of `keys` [N, Hkv, Dk] and `values` [N, Hkv, Dv]: float64 outputs and log-sum-exps
        of the columns `only`, by default all."""
        if only is not None:
            queries = tuple(tuple(row[i] for i in only) for row in self.queries)
            some = replace(self, queries=queries)
            return some.attend(q[:, :, only], keys, values, scale, sink_logits)
        most = max(map(len, self.tokens))
        index = torch.tensor(
            [[*tokens, *[0] * (most - len(tokens))] for tokens in self.tokens], dtype=torch.int64
        )
        k, v = (store[index].transpose(1, 2).to(q.device) for store in (keys, values))
        seen = torch.tensor(
            [_seen(self.policy.retention, row, most) for row in self.queries], device=q.device
        )
        seen = seen.reshape(*q.shape[::2], most).bool()
        out, lse = attention(self.policy, q, k, v, seen, scale, sink_logits)
        padding = torch.tensor([[p is None for p in row] for row in self.queries], device=q.device)
        padding = padding.reshape(q.shape[0], 1, -1).bool()
        return out.masked_fill(padding[..., None], 0), lse.masked_fill(padding, -torch.inf)


@functools.lru_cache(100_000)
def _seen(retention: Retention, queries: tuple[int | None, ...], keys: int) -> list[list[bool]]:
    return [
        [p is not None and model.visible(retention, p, j) for j in range(keys)] for p in queries
    ]


class ReferenceCache:
    """A stateful cache as the contract describes it."""

    def __init__(self, policy: CachePolicy, batch_size: int, capacity: int | None = None):
        self.policy = policy
        self.rows = [Row() for _ in range(batch_size)]
        self.prefill: Prefill | None = None
        self.slots = policy.storage.slots or capacity if isinstance(policy.storage, Fixed) else None

    # -- what it says of itself

    @property
    def batch_size(self) -> int:
        return len(self.rows)

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(row.state.offset for row in self.rows)

    @property
    def offset(self) -> int:
        return max(self.offsets)

    def positions(self, width: int) -> list[list[int]]:
        return [
            [start + i - left if left <= i < left + tokens else 0 for i in range(width)]
            for start, (left, tokens) in zip(self.offsets, self.coming(width), strict=True)
        ]

    # -- appends: columns[r][i] is the token in column i of row r, anything where it is padding

    def append_decode(self, columns) -> ReferenceRead:
        self._settled("append_decode")
        self._room([1] * self.batch_size)
        self.rows = [
            Row((*self._kept(row), column), model.append_decode(self.policy, row.state))
            for row, (column,) in zip(self.rows, columns, strict=True)
        ]
        return self._read([(row.state.offset - 1,) for row in self.rows])

    def append_window(self, columns) -> ReferenceRead:
        width = len(columns[0])
        coming, starts = self.coming(width), self.offsets
        if not self.policy.padding.right and any(left + tokens < width for left, tokens in coming):
            raise RefusedError("columns past a row's end")
        self._room([tokens for _, tokens in coming])
        self.rows = [
            Row(
                (*self._kept(row), *new[left : left + tokens]),
                model.append_window(
                    self.policy, row.state, width, tokens, self.prefill is not None
                ),
            )
            for row, new, (left, tokens) in zip(self.rows, columns, coming, strict=True)
        ]
        self._prefilled(coming)
        return self._read(
            [
                (None,) * left
                + tuple(range(start, start + tokens))
                + (None,) * (width - left - tokens)
                for start, (left, tokens) in zip(starts, coming, strict=True)
            ]
        )

    def _kept(self, row: Row) -> tuple:
        return row.tokens[: row.state.offset]

    def _room(self, tokens: list[int]) -> None:
        if self.slots is not None and any(
            o + n > self.slots for o, n in zip(self.offsets, tokens, strict=True)
        ):
            raise RuntimeError("full")

    def _read(self, queries) -> ReferenceRead:
        return ReferenceRead(self.policy, tuple(queries), tuple(row.tokens for row in self.rows))

    # -- padding

    def prepare_prefill(self, lengths, left_padding=None) -> None:
        self._settled("prepare_prefill")
        lengths = self._numbers(lengths)
        left = self._numbers(left_padding if left_padding is not None else [0] * self.batch_size)
        if any(left) and not self.policy.padding.left:
            raise RefusedError("left padding")
        self.prefill = Prefill(tuple(left), tuple(lengths))

    def finalize_prefill(self) -> None:
        self.prefill = None

    def coming(self, width: int) -> list[tuple[int, int]]:
        """(padding columns, tokens after them) of each row in the next `width` columns."""
        if self.prefill is None:
            return [(0, width)] * self.batch_size
        pads = [min(left, width) for left in self.prefill.left]
        return [
            (pad, min(n, width - pad)) for pad, n in zip(pads, self.prefill.lengths, strict=True)
        ]

    def _prefilled(self, coming: list[tuple[int, int]]) -> None:
        if self.prefill is None:
            return
        pads, tokens = zip(*coming, strict=True)
        self.prefill = Prefill(
            tuple(left - pad for left, pad in zip(self.prefill.left, pads, strict=True)),
            tuple(length - n for length, n in zip(self.prefill.lengths, tokens, strict=True)),
        )

    def _settled(self, call: str) -> None:
        if self.prefill is not None:
            raise RuntimeError(f"{call} during a prepared prefill")

    # -- taking tokens back

    def is_trimmable(self, n: int | list[int] = 1) -> bool:
        n = self._numbers(n)
        if self.prefill is not None:
            return not any(n)
        return all(
            model.trimmable(self.policy, row.state, m) for row, m in zip(self.rows, n, strict=True)
        )

    def trim(self, n, bypass=False) -> None:
        n = self._numbers(n)
        self._settled("trim")
        allowed = self._bypassable(n) if bypass else self.is_trimmable(n)
        if not allowed:
            raise RuntimeError(f"cannot trim {n}")
        self.rows = [
            Row(row.tokens, model.trim(row.state, m)) for row, m in zip(self.rows, n, strict=True)
        ]

    def _bypassable(self, n: list[int]) -> bool:
        return all(model.bypassable(row.state, m) for row, m in zip(self.rows, n, strict=True))

    def _numbers(self, n) -> list[int]:
        n = list(n) if isinstance(n, (list, tuple)) else [n] * self.batch_size
        if len(n) != self.batch_size or not all(isinstance(m, int) and m >= 0 for m in n):
            raise ValueError(f"not whole numbers, one a row: {n}")
        return n

    # -- rows and state

    def filter_rows(self, rows) -> None:
        self._settled("filter_rows")
        if not rows or not all(0 <= r < self.batch_size for r in rows):
            raise ValueError(f"no such rows: {rows}")
        self.rows = [_unverified(self.rows[r]) for r in rows]

    def extract_row(self, row: int) -> ReferenceCache:
        other = self.clone()
        other.filter_rows([row])
        return other

    @classmethod
    def merge_rows(cls, caches) -> ReferenceCache:
        if not caches:
            raise ValueError("nothing to merge")
        for cache in caches:
            cache._settled("merge_rows")
        other = caches[0].clone()
        other.rows = [row for cache in caches for row in cache.saved()]
        return other

    def clone(self) -> ReferenceCache:
        self._settled("clone")
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, rows=list(self.rows))
        return other

    def reset(self) -> None:
        self.rows, self.prefill = [Row() for _ in self.rows], None

    def saved(self) -> list[Row]:
        """What a state holds: each row with all its columns written."""
        self._settled("state_dict")
        return [
            Row(self._kept(row), model.settled(self.policy, _unverified(row).state))
            for row in self.rows
        ]

    def load(self, rows: list[Row]) -> None:
        self._settled("load_state_dict")
        if len(rows) != self.batch_size:
            raise ValueError("another batch size")
        self.rows = list(rows)


def _unverified(row: Row) -> Row:
    return Row(row.tokens, replace(row.state, verified=0))
