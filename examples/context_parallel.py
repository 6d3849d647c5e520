"""Context parallel decode: the positions of a row are spread over processes, and one collective a layer merges.

    torchrun --nproc-per-node 2 examples/context_parallel.py

Every process computes the same queries. The process whose turn it is appends the new key and value; the others attend
what they have, which is the read of their last append. Each gets a partial result and the log of its denominator, and
softmax over the parts of the keys is their average, weighted by the denominators. For policies that see everything.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))

from own_model import LanguageModel, rotated

import kvgen

POLICY = Path(__file__).with_name("context_parallel.kv")
LAYERS, TOKENS = 3, 70


class Part:
    """One process's share of a layer's keys and values."""

    def __init__(self, cache) -> None:
        self.cache, self.read = cache, None

    def step(self, q, k, v, mine: bool) -> torch.Tensor:
        """q [B, Hq, 1, D] over all keys of all processes."""
        if mine:
            self.read = self.cache.append_decode(k, v)
        if self.read is None:
            out, lse = torch.zeros_like(q), q.new_full(q.shape[:3], -torch.inf)
        else:
            out, lse = self.read.attend(q, return_lse=True)
        return merged(out, lse)


def merged(out: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """The softmax over all parts, from each part's result and log of its denominator."""
    mine = torch.cat([out, lse[..., None]], -1)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    outs, lses = torch.stack(parts).split([out.shape[-1], 1], -1)
    return (outs * lses.softmax(0)).sum(0)


@torch.no_grad()
def step(
    model: LanguageModel, parts: list[Part], token: torch.Tensor, position: int
) -> torch.Tensor:
    """The logits after one more token, [B, vocabulary]: position p is kept by process p modulo their number."""
    mine = position % dist.get_world_size() == dist.get_rank()
    positions = torch.full(token.shape, position)
    x = model.embedding(token)
    for block, part in zip(model.blocks, parts, strict=True):
        attention = block.attention
        normal = F.rms_norm(x, x.shape[-1:])
        q = rotated(attention._split(attention.queries(normal), attention.heads), positions)
        k = rotated(attention._split(attention.keys(normal), attention.kv_heads), positions)
        v = attention._split(attention.values(normal), attention.kv_heads)
        x = x + attention.out(part.step(q, k, v, mine).transpose(1, 2).flatten(2))
        x = x + block.down(F.silu(block.up(F.rms_norm(x, x.shape[-1:]))))
    return model.head(F.rms_norm(x, x.shape[-1:]))[:, -1]


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    package = kvgen.load(POLICY)
    torch.manual_seed(0)
    model = LanguageModel(LAYERS).eval()
    ids = torch.randint(96, (2, TOKENS))
    parts = [Part(package.FullCache(2)) for _ in range(LAYERS)]
    together = torch.stack([step(model, parts, ids[:, i : i + 1], i) for i in range(TOKENS)], 1)
    with torch.no_grad():
        alone = model(ids, package.WholeCaches(2))
    difference = float((together - alone).abs().max())
    print(
        f"process {rank} of {ranks}: {parts[0].cache.offset} of {TOKENS} positions;"
        f" largest logit difference from one process {difference:.1e}",
        flush=True,
    )
    dist.barrier()
    dist.destroy_process_group()
    if difference > 1e-4:
        raise SystemExit("the logits differ")


if __name__ == "__main__":
    if "RANK" not in os.environ:
        raise SystemExit(f"run it with: torchrun --nproc-per-node 2 {Path(__file__).name}")
    main()
