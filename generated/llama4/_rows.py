# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body e67f9b54a935 codegen 1
"""Rows of stateful caches that come and go: taken out, kept, repeated, put together, copied."""

from __future__ import annotations

from typing import Any

import torch

from ._checks import whole_number
from ._compiled import token_of
from ._masks import Masks


class RowMethods:
    """The part of a stateful cache that acts on whole rows. A row is the numbers that `PER_ROW` names, and its slots."""

    def extract_row(self, row: int) -> Any:
        """An independent cache of one row."""
        return self._select(self._row_numbers([row], "extract_row"))

    def filter_rows(self, rows: Any) -> None:
        """Keep these rows, in this order, in place; repeats are allowed, as in a beam search."""
        rows = self._row_numbers(rows, "filter_rows")
        other = self._select(rows)
        if len(rows) == self._batch_size and other._storage.slots == self._storage.slots:
            self._storage.detach()
            self._storage.keys.copy_(other._storage.keys)
            self._storage.values.copy_(other._storage.values)
            other._storage, other._kernels = self._storage, self._kernels
        token = self._token
        self.__dict__ = other.__dict__
        self._token = token
        self._tell_kernels()

    @classmethod
    def merge_rows(cls, caches: Any) -> Any:
        """A new cache of the rows of all `caches`, whatever each holds. They stay as they are."""
        listed = caches if isinstance(caches, (list, tuple)) else []
        if not listed or any(type(cache) is not cls for cache in listed):
            got = [type(cache).__name__ for cache in listed] or type(caches).__name__
            raise ValueError(f"merge_rows takes a list of {cls.__name__}, one or more, got {got}")
        first = caches[0]
        for cache in caches:
            cache._settled("merge_rows")
            if (cache.signature, cache._device) != (first.signature, first._device):
                raise ValueError(
                    f"merge_rows takes caches of one kind, got {first.signature!r} on {first._device}"
                    f" and {cache.signature!r} on {cache._device}; convert or move them first"
                )
        parts = [cache._written() for cache in caches]
        merged = first._shell(sum(part._batch_size for part in parts))
        merged._start()
        for name in cls.PER_ROW:
            setattr(merged, name, sum((getattr(part, name) for part in parts), ()))
        merged._storage = merged._new_storage(merged._batch_size)
        row = 0
        for part in parts:
            rows, slots = slice(row, row + part._batch_size), part._storage.slots
            slots = min(slots, merged._storage.slots)
            merged._storage.keys[rows, :, :slots] = part._storage.keys[:, :, :slots]
            merged._storage.values[rows, :, :slots] = part._storage.values[:, :, :slots]
            row += part._batch_size
        merged._after_row_change()
        return merged

    def clone(self, lazy: bool = False) -> Any:
        """An independent cache with the same rows, down to what may be taken back.

        `lazy`: nothing is copied before one of the two is written. That one's storage moves then, so neither may be
        part of a graph that was captured before.
        """
        self._settled("clone")
        return self._shared() if lazy else self._select_rows(list(range(self._batch_size)))

    def _shared(self) -> Any:
        """Such a cache on the same storage. Its masks are its own: threads may use the two."""
        other = self._shell(self._batch_size)
        other._masks, other._storage = Masks(), self._storage.share()
        return other

    def _row_numbers(self, rows: Any, call: str) -> list[int]:
        self._settled(call)
        rows = rows.tolist() if isinstance(rows, torch.Tensor) else rows
        if not isinstance(rows, (list, tuple)) or not rows:
            raise ValueError(f"{call} takes a list of one or more row numbers, got {rows!r}")
        numbers = [whole_number(row, "a row", at_least=0) for row in rows]
        if max(numbers) >= self._batch_size:
            raise ValueError(f"rows must be 0 to {self._batch_size - 1}, got {numbers}")
        return numbers

    def _shell(self, rows: int) -> Any:
        """This cache for another number of rows, before it has storage."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._batch_size, other._token = rows, token_of(other)
        other._kernels = type(self._kernels)(rows, self._dtype, self._device)
        return other

    def _select_rows(self, rows: list[int]) -> Any:
        other = self._shell(len(rows))
        for name in self.PER_ROW:
            values = getattr(self, name)
            setattr(other, name, tuple(values[row] for row in rows))
        other._storage = self._storage.rows(rows, other._slots())
        return other

    def _select(self, rows: list[int]) -> Any:
        other = self._select_rows(rows)
        other._after_row_change()
        return other

    def _after_row_change(self) -> None:
        """What was "directly after an append_window" no longer is."""

    def _written(self) -> Any:
        """This cache, or one like it, with all tokens in its storage."""
        return self
