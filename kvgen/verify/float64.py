# pyright: basic
"""The judge's arithmetic: softmax attention in float64, with gradients, and the tokens it is computed over."""

from __future__ import annotations

import functools

import torch

from kvgen.ir import CachePolicy, Scores


class Store:
    """Every token ever appended, by number: float64 keys and values. One for all caches of a shape, so that they can merge."""

    @staticmethod
    @functools.cache
    def of(heads) -> Store:
        return Store(heads)

    @torch.inference_mode(False)  # one store for all modes
    def __init__(self, heads):
        self.count = 0
        self.keys = torch.zeros(64, heads.kv, heads.key_dim, dtype=torch.float64)
        self.values = torch.zeros(64, heads.kv, heads.value_dim, dtype=torch.float64)

    @torch.inference_mode(False)
    def add(self, k: torch.Tensor, v: torch.Tensor) -> list[list[int]]:
        """The numbers of the tokens of k and v [B, Hkv, L, D], row by row."""
        rows, width, first = k.shape[0], k.shape[2], self.count
        self.count += rows * width
        for name, x in (("keys", k), ("values", v)):
            plane = getattr(self, name)
            if self.count > len(plane):
                plane = torch.cat([plane, plane.new_zeros(self.count, *plane.shape[1:])])
                setattr(self, name, plane)
            plane[first : self.count] = x.transpose(1, 2).flatten(0, 1).double().cpu()
        return [list(range(first + r * width, first + (r + 1) * width)) for r in range(rows)]


def attention(policy: CachePolicy, q, k, v, seen, scale=None, sink_logits=None):
    """q [.., Hq, L, Dk], k [.., Hkv, N, Dk], v [.., Hkv, N, Dv], seen [.., L, N] bool, sink_logits [Hq]: float64
    (out [.., Hq, L, Dv], lse [.., Hq, L]); zeros and -inf, or the sink logit, where nothing is seen."""
    group = policy.heads.group
    k, v = (x.double().repeat_interleave(group, -3) for x in (k, v))
    scores = _scores(policy.scores, q.double() @ k.transpose(-1, -2), scale, policy.heads.key_dim)
    scores = scores.masked_fill(~seen.unsqueeze(-3), -torch.inf)
    if sink_logits is not None:
        sinks = sink_logits.double()[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sinks], -1)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.detach().masked_fill(lse == -torch.inf, 0)[..., None]).exp()
    shares = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    return shares[..., : k.shape[-2]] @ v, lse


def _scores(scores: Scores, products, scale, key_dim: int):
    if scale is None:
        scale = key_dim**-0.5 if scores.scale is None else scores.scale
    products = products * scale
    return (
        products if scores.softcap is None else scores.softcap * (products / scores.softcap).tanh()
    )
