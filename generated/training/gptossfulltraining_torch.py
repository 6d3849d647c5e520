# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body cc90e08660ab codegen 1
"""The torch kernels of GptOssFullTrainingCache: nothing is stored; for training and scoring.

Query columns are attended in tiles, so work grows as L times what a query sees; keys that every query of a tile sees need
no mask. Backward computes a tile's weights again from its log-sum-exp: nothing of size L * L is kept. No atomics: the same
inputs give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ._columns import NOWHERE, Columns
from ._tiles import Piece, Tile, split, steps, tiles_of
from .gptossfulltraining_policy import seen

KV_HEADS, GROUP, VALUE_DIM = 8, 8, 64  # GROUP: the query heads of a kv head
LOWEST = torch.finfo(torch.float32).min


class GptOssFullTrainingTorch:
    """Kernels in plain PyTorch, for any device. They need no workspace."""

    name = "torch tiles"

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device

    def attend(
        self,
        read: Any,
        q: torch.Tensor,
        scale: float,
        sink_logits: torch.Tensor | None,
        return_lse: bool = True,  # a backend may save itself the work
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q [B, Hq, L, Dk] to out [B, Hq, L, Dv] in q's dtype and lse, float32 [B, Hq, L]; differentiable."""
        columns, (k, v) = read.columns, read.new
        if not columns.padded:
            return _Attention.apply(q, k, v, sink_logits, scale, tiles(read))
        # A NaN in padding must reach no product, forward or backward: 0 * NaN is NaN.
        padding = columns.padding(q.device)
        q, k, v = (x.masked_fill(padding, 0) for x in (q, k, v))
        out, lse = _Attention.apply(q, k, v, sink_logits, scale, tiles(read))
        return out.masked_fill(padding, 0), lse.masked_fill(padding[..., 0], -torch.inf)


def tiles(read: Any) -> list[Tile]:
    """The tiles of a read. Layers whose queries see the same build them once: a limit beyond the sequence is none."""
    one, device = read.columns.distinct(), read.new[0].device
    if one.width == 1:
        return build_tiles(one, device)
    limits = one.width, one.width, 0
    key = ("stateless", limits, one, device)
    return read.masks.get(key, lambda: build_tiles(one, device))


def build_tiles(columns: Columns, device: torch.device) -> list[Tile]:
    """A row's positions are its columns: key column k, query column q."""
    tiles = []
    queries, keys = columns.positions(-1, device), columns.positions(NOWHERE, device)
    for a, b, rows in tiles_of(columns):
        if not rows:
            tiles.append(Tile(a, b, []))
            continue

        def hidden(low: int, high: int, q: torch.Tensor = queries[:, a:b]) -> torch.Tensor:
            return ~seen(q, keys[:, low:high])

        clean, high = min(row.first + 1 for row in rows), max(row.last + 1 for row in rows)
        tiles.append(Tile(a, b, split(False, 0, 0, clean, high, hidden)))
    return tiles


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sink_logits, scale, tiles):
        out = q.new_empty(*q.shape[:3], VALUE_DIM)
        lse = q.new_empty(q.shape[:3], dtype=torch.float32)
        for a, b, pieces in tiles:
            out[:, :, a:b], lse[:, :, a:b] = attend_tile(q[:, :, a:b], blocks(k, v, pieces), scale)
        # The sink logit joins the denominator once: exp(lse) becomes exp(lse) + exp(sink).
        seen_keys, lse = lse, torch.logaddexp(lse, sink_logits.float()[:, None])
        out = (out * (seen_keys - lse).exp().nan_to_num(0)[..., None]).to(q.dtype)
        ctx.save_for_backward(q, k, v, sink_logits, out, lse)
        ctx.scale, ctx.tiles = scale, tiles
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, k, v, sink_logits, out, lse = ctx.saved_tensors
        # A query that sees nothing has weights exp(-inf - inf) = 0.
        lse = lse.masked_fill(lse == -torch.inf, torch.inf)
        d_out = d_out.float()
        # With p the weights and dp = d_out . v, a score's gradient is p * (dp - sum(p * dp) + d_lse).
        shift = d_lse - (d_out * out.float()).sum(-1)
        dq, dk, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (q, k, v))
        for a, b, pieces in ctx.tiles:
            columns = slice(a, b)
            tile = [pack(x[:, :, columns]) for x in (q, d_out, lse[..., None], shift[..., None])]
            tile_dq = tile_gradients(*tile, k, v, dk, dv, pieces, ctx.scale)
            dq[:, :, columns] = unpack(tile_dq, b - a)
        sink = sink_logits.float()[:, None]
        d_sink = ((sink - lse).exp() * shift).sum((0, 2)).to(sink_logits.dtype)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), d_sink, None, None


def tile_gradients(q, d_out, lse, shift, k, v, dk, dv, pieces, scale) -> torch.Tensor:
    """Add a tile's part to dk and dv, float32; returns its dq.

    Packed as in `attend_tile`, so that the products sum over the query heads of a kv head.
    """
    dq = torch.zeros_like(q)
    width = q.shape[2] // GROUP
    for _, low, high, hidden in steps(pieces):
        keys, values = k[:, :, low:high].float(), v[:, :, low:high].float()
        scores = (q * scale) @ keys.mT
        weights = hide(scores - lse, hidden, width).exp()
        d_scores = weights * (d_out @ values.mT + shift) * scale
        dq += d_scores @ keys
        dk[:, :, low:high] += d_scores.mT @ q
        dv[:, :, low:high] += weights.mT @ d_out
    return dq


def blocks(k: torch.Tensor, v: torch.Tensor, pieces: list[Piece]) -> Any:
    """(keys, values, hidden) of a few keys each."""
    for _, low, high, hidden in steps(pieces):
        yield k[:, :, low:high], v[:, :, low:high], hidden


def pack(x: torch.Tensor) -> torch.Tensor:
    """[B, Hq, T, D] to float32 [B, Hkv, group * T, D]: the query heads of a kv head as rows."""
    return x.float().reshape(x.shape[0], KV_HEADS, -1, x.shape[3])


def unpack(x: torch.Tensor, width: int) -> torch.Tensor:
    return x.reshape(x.shape[0], KV_HEADS * GROUP, width, x.shape[3])


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
