# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 23ac1df4a2e9 codegen 1
"""The stored keys and values of a cache, and the reads that were lent from them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from ._columns import Columns

ALL = slice(None)
# (first, end) to the (position, slot, tokens) of each stretch of positions that is stored
Runs = Callable[[int, int], list[tuple[int, int, int]]]


class Overwritten(NamedTuple):
    """Tokens that were at `index` of the planes, [.., rows or heads, tokens, D]."""

    index: Any
    keys: torch.Tensor
    values: torch.Tensor
    tokens: int

    def put_back(self, storage: Storage) -> None:
        storage.keys[self.index], storage.values[self.index] = self.keys, self.values


class Storage:
    """Two planes, keys [B, Hkv, slots, Dk] and values [B, Hkv, slots, Dv].

    Reads are snapshots by an undo log: a write hands every read that is still held the tokens it overwrites, and the
    read rebuilds its planes only if it is attended again. Nobody copies planes at an append.
    Planes that are `shared` are another storage's too, and nobody writes them: whoever wants to separates first.
    """

    __slots__ = ("_lent", "keys", "place", "shared", "values")

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values = keys, values
        self.place: Any = None  # what kernels know of these planes, until they are others
        self.shared = False
        self._lent: list[weakref.ref[Any]] = []

    @classmethod
    @torch.inference_mode(False)  # planes outlive the block they were made in
    def zeros(cls, rows, heads, slots, key_dim, value_dim, dtype, device) -> Storage:
        """Zeros, never `empty`: what a mask hides must still be finite."""
        return cls(
            torch.zeros(rows, heads, slots, key_dim, dtype=dtype, device=device),
            torch.zeros(rows, heads, slots, value_dim, dtype=dtype, device=device),
        )

    @property
    def slots(self) -> int:
        return self.keys.shape[2]

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def share(self) -> Storage:
        """Another storage of the same planes, until one of the two is written."""
        other = Storage(self.keys, self.values)
        self.shared = other.shared = True
        return other

    @torch.inference_mode(False)
    def separate(self) -> None:
        """Planes of its own, before a write; reads that are held see the same tokens in them."""
        if self.keys.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "this cache shares its storage with the one it was cloned from until it is written:"
                " append to it once before a graph is captured"
            )
        self.keys, self.values, self.shared = self.keys.clone(), self.values.clone(), False
        self.place = None

    def lend(self, read: Any) -> Any:
        """Count a read among those that this storage's writes must tell."""
        self._lent.append(weakref.ref(read))
        return read

    def held(self, lowest_slot: int = 0) -> list[Any]:
        """The open reads that look at `lowest_slot` or later ones; those that are gone are forgotten."""
        for ref in self._lent:
            if ref() is not None:
                break
        else:
            self._lent.clear()
            return []
        reads = [read for ref in self._lent if (read := ref()) is not None and read.storage is self]
        self._lent = [weakref.ref(read) for read in reads]
        return [read for read in reads if read.slots > lowest_slot]

    def write(self, k: torch.Tensor, v: torch.Tensor, columns: Columns, runs: Runs) -> None:
        """Store the tokens of an append where `runs` says."""
        for index, source, lowest_slot in places(columns, runs, self.keys.device):
            self._put(index, k[source], v[source], lowest_slot)

    def erase(self, columns: Columns, runs: Runs) -> None:
        """Zero tokens that were taken back: they may be anything, and a masked NaN is still a NaN."""
        for index, _, lowest_slot in places(columns, runs, self.keys.device):
            self._put(index, 0, 0, lowest_slot)

    def _put(self, index: Any, k: Any, v: Any, lowest_slot: int) -> None:
        if self.shared:
            self.separate()
        self._keep(index, lowest_slot)
        self.keys[index], self.values[index] = k, v

    def keep(self, columns: Columns, runs: Runs) -> None:
        """Before a kernel stores the tokens of an append: reads that are held get what they overwrite."""
        if self.held():
            for index, _, lowest_slot in places(columns, runs, self.keys.device):
                self._keep(index, lowest_slot)

    def _keep(self, index: Any, lowest_slot: int) -> None:
        if self._lent and (held := self.held(lowest_slot)):
            old = self.keys[index].clone(), self.values[index].clone()
            tokens = old[0][..., 0].numel() // (self.keys.shape[0] * self.keys.shape[1])
            self.hand_over(held, Overwritten(index, *old, tokens))

    def hand_over(self, held: list[Any], old: Overwritten) -> None:
        """Give reads the tokens that are about to be overwritten, at most as many as the planes hold."""
        for read in held:
            read.overwritten.append(old)
            read.kept += old.tokens
            if read.kept >= self.slots:
                read.rewind()

    def detach(self) -> None:
        """Before all of it is overwritten: the reads that are held go on with a copy."""
        if self.shared:
            self.separate()
        if held := self.held():
            copy = Storage(self.keys.clone(), self.values.clone())
            for read in held:
                read.storage = copy
            self._lent = []

    def rewound(self, overwritten: list[Overwritten]) -> Storage:
        """A copy with overwritten tokens put back, the last first."""
        copy = Storage(self.keys.clone(), self.values.clone())
        for old in reversed(overwritten):
            old.put_back(copy)
        return copy

    @torch.inference_mode(False)
    def rows(self, rows: list[int], slots: int) -> Storage:
        """A copy of the first `slots` slots of some rows."""
        return Storage(
            self.keys[rows, :, :slots].contiguous(), self.values[rows, :, :slots].contiguous()
        )

    @torch.inference_mode(False)
    def resized(self, slots: int) -> None:
        """Grow with zeros, or give slots back. Reads see the same tokens at the same slots."""
        self.place = None
        if slots < self.slots:
            self.detach()
            self.keys, self.values = (x[:, :, :slots].clone() for x in (self.keys, self.values))
            return
        for name in ("keys", "values"):
            plane = getattr(self, name)
            larger = plane.new_zeros(*plane.shape[:2], slots, plane.shape[3])
            larger[:, :, : plane.shape[2]] = plane
            setattr(self, name, larger)
        self.shared = False


def places(columns: Columns, runs: Runs, device: torch.device) -> Iterator[tuple[Any, Any, int]]:
    """(index of the planes, index of the columns, lowest slot) of each stretch of tokens.

    Rows that stand at the same place are written by slices, others by one index of all tokens.
    """
    one = columns.distinct()
    if len(one.ends) == 1:
        for position, slot, tokens in runs(one.firsts[0], one.ends[0]):
            column = position - one.starts[0]
            yield (
                (ALL, ALL, slice(slot, slot + tokens)),
                (ALL, ALL, slice(column, column + tokens)),
                slot,
            )
        return
    rows, slots, at, lowest = [], [], [], 1 << 62
    for row, (start, first, end) in enumerate(zip(columns.starts, columns.firsts, columns.ends)):
        for position, slot, tokens in runs(first, end):
            rows.append(torch.full((tokens,), row, device=device))
            slots.append(torch.arange(slot, slot + tokens, device=device))
            lowest = min(lowest, slot)
            at.append(torch.arange(position - start, position - start + tokens, device=device))
    if rows:
        row = torch.cat(rows)
        yield (row, ALL, torch.cat(slots)), (row, ALL, torch.cat(at)), lowest
