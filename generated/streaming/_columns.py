# Written by kvgen from streaming.kv and yours to keep: kvgen claims no right to it. Edit streaming.kv.
# kvgen: streaming.kv source e0ad27c66182 body 277f13836fb5 codegen 1
"""Where the columns of an append lie."""

from __future__ import annotations

from typing import NamedTuple

import torch

NOWHERE = 1 << 62  # the position of a slot that holds nothing: later than every query


class Columns(NamedTuple):
    """Column i of row r is position starts[r] + i: a token inside [firsts[r], ends[r]), padding outside."""

    starts: tuple[int, ...]
    firsts: tuple[int, ...]
    ends: tuple[int, ...]
    width: int

    @property
    def padded(self) -> bool:
        # no row has more tokens than columns, so the sums are equal only if every row has as many
        full = self.width * len(self.ends)
        return self.starts != self.firsts or sum(self.ends) - sum(self.starts) != full

    def tokens(self) -> tuple[int, ...]:
        """How many of the columns are tokens, row by row."""
        return tuple(end - first for first, end in zip(self.firsts, self.ends))

    def distinct(self) -> Columns:
        """One row for all where they stand at the same place: what is built for it broadcasts."""
        if len(set(zip(self.starts, self.firsts, self.ends))) > 1:
            return self
        return Columns(self.starts[:1], self.firsts[:1], self.ends[:1], self.width)

    def positions(self, padding: int, device: torch.device) -> torch.Tensor:
        """int64 [rows, width], `padding` at padding columns."""
        start, first, end = torch.tensor(self[:3], device=device)[..., None]
        p = start + torch.arange(self.width, device=device)
        return torch.where((p >= first) & (p < end), p, padding)

    def padding(self, device: torch.device) -> torch.Tensor:
        """bool [rows, 1, width, 1]: the padding columns."""
        return (self.positions(-1, device) < 0)[:, None, :, None]


class Step(Columns):
    """Those of a decode step: one token a row."""

    __slots__ = ()
    padded = False

    @staticmethod
    def after(starts: tuple[int, ...]) -> Step:
        ends = (starts[0] + 1,) if len(starts) == 1 else tuple([start + 1 for start in starts])
        return tuple.__new__(Step, (starts, starts, ends, 1))
