# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 1ae62cf36e3d codegen 1
"""Tiles of query columns, and the pieces of keys that they see: what the torch kernels walk over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from ._columns import Columns

TILE = 128  # query columns attended at once
BLOCK = 2048  # keys a step of the online softmax


class Piece(NamedTuple):
    """Keys [low, high) of the storage, or of the new columns. `hidden` bool [rows, 1, T, high - low]; None: all are seen."""

    stored: bool
    low: int
    high: int
    hidden: torch.Tensor | None


class Tile(NamedTuple):
    """Query columns [a, b) and all keys that some of them see."""

    a: int
    b: int
    pieces: list[Piece]


class Queries(NamedTuple):
    """The real queries of one row in a tile: positions [first, last]; column 0 of the row is at `start`."""

    first: int
    last: int
    start: int
    row: int


def tiles_of(columns: Columns) -> Iterator[tuple[int, int, list[Queries]]]:
    """(a, b, the rows that have tokens there) of each tile."""
    for a in range(0, columns.width, TILE):
        b = min(a + TILE, columns.width)
        rows = []
        for row, (start, first, end) in enumerate(
            zip(columns.starts, columns.firsts, columns.ends)
        ):
            low, high = max(first, start + a), min(end, start + b)
            if low < high:
                rows.append(Queries(low, high - 1, start, row))
        yield a, b, rows


def split(
    stored: bool,
    low: int,
    clean_low: int,
    clean_high: int,
    high: int,
    hide: Callable[[int, int], torch.Tensor],
) -> list[Piece]:
    """Keys [low, high) in up to three pieces, of which [clean_low, clean_high) needs no mask."""
    if clean_low >= clean_high:
        return [Piece(stored, low, high, hide(low, high))] if low < high else []
    left = [Piece(stored, low, clean_low, hide(low, clean_low))] if low < clean_low else []
    right = [Piece(stored, clean_high, high, hide(clean_high, high))] if clean_high < high else []
    return [*left, Piece(stored, clean_low, clean_high, None), *right]


def steps(pieces: list[Piece]) -> Iterator[Piece]:
    """The pieces, cut into steps of at most BLOCK keys."""
    for stored, start, end, hidden in pieces:
        for low in range(start, end, BLOCK):
            high = min(low + BLOCK, end)
            part = None if hidden is None else hidden[..., low - start : high - start]
            yield Piece(stored, low, high, part)
