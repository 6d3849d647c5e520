# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 3f8bef3b30aa codegen 1
"""The torch kernels of FullCache: all tokens of each row.

Query columns are attended in tiles, so work grows as L times what a query sees. The keys of a tile are pieces of the
stored planes, read where they lie; what every query of the tile sees needs no mask.
"""

from __future__ import annotations

from typing import Any

import torch

from ._columns import Columns
from ._storage import Storage
from ._tiles import Piece, Tile, split, steps, tiles_of
from .full_policy import runs, seen

KV_HEADS, GROUP, VALUE_DIM = 8, 8, 64  # GROUP: the query heads of a kv head
LOWEST = torch.finfo(torch.float32).min


class FullTorch:
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
        # The sink logit joins the denominator once: exp(lse) becomes exp(lse) + exp(sink).
        seen_keys, lse = lse, torch.logaddexp(lse, sink_logits.float()[:, None])
        share = (seen_keys - lse).exp().nan_to_num(0)  # nothing seen and no sink: -inf - -inf
        out = (out * share[..., None]).to(q.dtype)
        if read.columns.padded:
            padding = read.columns.padding(q.device)
            out, lse = out.masked_fill(padding, 0), lse.masked_fill(padding[..., 0], -torch.inf)
        return out, lse


def tiles(read: Any) -> list[Tile]:
    """The tiles of a read, built once for the layers of a forward that stand at the same place."""
    one = read.columns.distinct()
    device = read.storage.keys.device
    build = tiles_in_storage
    if one.width == 1 and len(one.ends) == 1:  # needs no mask
        return build(one, device)
    key = (build.__name__, "full", one, device)
    return read.masks.get(key, lambda: build(one, device))


def tiles_in_storage(columns: Columns, device: torch.device) -> list[Tile]:
    """The columns are in the storage, where a token's slot is its position."""
    tiles = []
    for a, b, rows in tiles_of(columns):
        if not rows:
            tiles.append(Tile(a, b, []))
            continue

        def hidden(low: int, high: int, a: int = a, b: int = b) -> torch.Tensor:
            q, k = columns.positions(-1, device)[:, a:b], torch.arange(low, high, device=device)
            return ~seen(q, k[None])

        clean, high = min(row.first + 1 for row in rows), max(row.last + 1 for row in rows)
        tiles.append(Tile(a, b, split(True, 0, 0, clean, high, hidden)))
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
    keys, values = read.keys, read.values
    for _, low, high, hidden in steps(pieces):
        yield keys[:, :, low:high], values[:, :, low:high], hidden
