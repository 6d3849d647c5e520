# Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
# kvgen: mistral.kv source 0d21d37929f3 body d67fd895fa74 codegen 1
"""The torch kernels of SlidingCache: the last 4096 tokens of each row, in a ring.

Query columns are attended in tiles, so work grows as L times what a query sees. The keys of a tile are pieces of the
stored planes and of the new columns, read where they lie; what every query of the tile sees needs no mask.
"""

from __future__ import annotations

from typing import Any

import torch

from ._columns import NOWHERE, Columns
from ._storage import Storage
from ._tiles import Piece, Queries, Tile, split, steps, tiles_of
from .sliding_policy import RING, SLOTS, WINDOW, first_seen, runs, seen

KV_HEADS, GROUP, VALUE_DIM = 8, 4, 128  # GROUP: the query heads of a kv head
LOWEST = torch.finfo(torch.float32).min


class SlidingTorch:
    """Kernels in plain PyTorch, for any device. They need no workspace."""

    name = "torch tiles"

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device

    def write(self, storage: Storage, k: torch.Tensor, v: torch.Tensor, columns: Columns) -> None:
        """Store the tokens of an append."""
        storage.write(k, v, columns, runs)

    def attend(
        self,
        read: Any,
        q: torch.Tensor,
        scale: float,
        sink_logits: torch.Tensor | None,
        return_lse: bool = True,  # a backend may save itself the work
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q [B, Hq, L, Dk] to out [B, Hq, L, Dv] in q's dtype and lse, float32 [B, Hq, L]."""
        out = q.new_empty(*q.shape[:3], VALUE_DIM)
        lse = q.new_empty(q.shape[:3], dtype=torch.float32)
        for a, b, pieces in tiles(read):
            out[:, :, a:b], lse[:, :, a:b] = attend_tile(q[:, :, a:b], blocks(read, pieces), scale)
        if read.columns.padded:
            padding = read.columns.padding(q.device)
            out, lse = out.masked_fill(padding, 0), lse.masked_fill(padding[..., 0], -torch.inf)
        return out, lse


def tiles(read: Any) -> list[Tile]:
    """The tiles of a read, built once for the layers of a forward that stand at the same place."""
    one = read.columns.distinct()
    device = read.storage.keys.device
    build = tiles_in_ring if read.new is None else tiles_beside_ring
    key = (build.__name__, WINDOW, RING, one, device)
    return read.masks.get(key, lambda: build(one, device))


def shown(tops: tuple[int, ...], slots: int, device: torch.device) -> torch.Tensor:
    """int64 [rows, slots]: the newest position below a row's top that belongs in each slot, NOWHERE if there is none."""
    top = torch.tensor(tops, device=device)[:, None]
    slot = torch.arange(slots, device=device)
    p = top - 1 - (top - 1 - slot) % RING
    return torch.where(p >= 0, p, NOWHERE)


def tiles_in_ring(columns: Columns, device: torch.device) -> list[Tile]:
    """Of columns that are in the ring: slots in their physical order, softmax does not care."""
    used = min(SLOTS, max(columns.ends))
    tiles = []
    for a, b, rows in tiles_of(columns):
        hidden = None
        if not all(sees_all(row, used) for row in rows):
            queries = columns.positions(-1, device)[:, a:b]
            hidden = ~seen(queries, shown(columns.ends, used, device))
        tiles.append(Tile(a, b, [Piece(True, 0, used, hidden)]))
    return tiles


def sees_all(row: Queries, used: int) -> bool:
    """Whether a row has one query, just appended, and it sees every slot below `used`."""
    oldest = max(0, row.last + 1 - RING)
    return row.first == row.last and row.last + 1 >= used and oldest >= first_seen(row.last)


def tiles_beside_ring(columns: Columns, device: torch.device) -> list[Tile]:
    """Of columns beside the ring: the slots before them, while a query still sees one, and new columns."""
    used = min(SLOTS, max(columns.firsts))
    queries, new = columns.positions(-1, device), columns.positions(NOWHERE, device)
    in_ring = shown(columns.firsts, used, device)
    tiles = []
    for a, b, rows in tiles_of(columns):
        if not rows:
            tiles.append(Tile(a, b, []))
            continue

        def hide_stored(low: int, high: int, q: torch.Tensor = queries[:, a:b]) -> torch.Tensor:
            return ~seen(q, in_ring[:, low:high])

        def hide_new(low: int, high: int, q: torch.Tensor = queries[:, a:b]) -> torch.Tensor:
            return ~seen(q, new[:, low:high])

        firsts = [columns.firsts[row.row] for row in rows]
        pieces = []
        if any(first_seen(row.first) < first for row, first in zip(rows, firsts)):
            pieces.append(Piece(True, 0, used, hide_stored(0, used)))
        low = min(max(first_seen(row.first), first) - row.start for row, first in zip(rows, firsts))
        pieces += split(
            False,
            low,
            max(max(first_seen(row.last), first) - row.start for row, first in zip(rows, firsts)),
            min(row.first + 1 - row.start for row in rows),
            max(row.last + 1 - row.start for row in rows),
            hide_new,
        )
        tiles.append(Tile(a, b, pieces))
    return tiles


def attend_tile(q: torch.Tensor, blocks: Any, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Online softmax in float32 over blocks of (keys, values, hidden), for q [B, Hq, T, Dk].

    The query heads of a kv head are packed as rows, so keys and values are read once and never repeated.
    """
    rows, heads, width, dim = q.shape
    q = (q.float() * scale).reshape(rows, KV_HEADS, GROUP * width, dim)
    best = q.new_full((*q.shape[:3], 1), LOWEST)
    total, out = torch.zeros_like(best), q.new_zeros(*q.shape[:3], VALUE_DIM)
    for keys, values, hidden in blocks:
        scores = q @ keys.float().mT
        scores = hide(scores, hidden, width)
        highest = torch.maximum(best, scores.amax(-1, keepdim=True))
        weights, shrink = (scores - highest).exp(), (best - highest).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights @ values.float()
        best = highest
    lse = (best + total.log()).reshape(rows, heads, width)
    out = out / total.clamp_min(1)  # a total is 0, or at least exp(0)
    return out.reshape(rows, heads, width, VALUE_DIM), lse


def hide(scores: torch.Tensor, hidden: torch.Tensor | None, width: int) -> torch.Tensor:
    """Scores [B, Hkv, group * T, N] with -inf where hidden [rows, 1, T, N] says so."""
    if hidden is None:
        return scores
    scores = scores.unflatten(2, (GROUP, width))
    return scores.masked_fill(hidden[:, :, None], -torch.inf).flatten(2, 3)


def blocks(read: Any, pieces: list[Piece]) -> Any:
    """(keys, values, hidden) of at most BLOCK keys each."""
    stored = read.keys, read.values
    for is_stored, low, high, hidden in steps(pieces):
        keys, values = stored if is_stored else read.new
        yield keys[:, :, low:high], values[:, :, low:high], hidden
