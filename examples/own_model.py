"""A language model of your own on kvgen's caches: plain PyTorch, no transformers.

    python examples/own_model.py

What changes against attention without a cache is in `Attention.forward`: the keys and values are appended, and the
read that comes back is attended. Which method appends is the phase: `append_window` for a prompt or several tokens,
`append_decode` for one. The cache says at which positions the next columns stand, and padding is told to it before.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

POLICY = Path(__file__).with_name("tiny.kv")


class Attention(nn.Module):
    """Grouped-query attention with rotary embedding, of `heads` query heads and half as many pairs of keys and values."""

    def __init__(self, width: int, heads: int, dim: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, heads // 2, dim
        self.queries = nn.Linear(width, heads * dim, bias=False)
        self.keys = nn.Linear(width, self.kv_heads * dim, bias=False)
        self.values = nn.Linear(width, self.kv_heads * dim, bias=False)
        self.out = nn.Linear(heads * dim, width, bias=False)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, cache, decode: bool
    ) -> torch.Tensor:
        q = rotated(self._split(self.queries(x), self.heads), positions)
        k = rotated(self._split(self.keys(x), self.kv_heads), positions)
        v = self._split(self.values(x), self.kv_heads)
        read = cache.append_decode(k, v) if decode else cache.append_window(k, v)
        return self.out(read.attend(q).transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.unflatten(-1, (heads, self.dim)).transpose(1, 2)


def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """x [B, H, L, D] turned by its positions [B, L]."""
    half = x.shape[-1] // 2
    frequencies = 10_000.0 ** (-torch.arange(half, dtype=torch.float32, device=x.device) / half)
    angles = positions[:, None, :, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dim: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dim)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, cache, decode: bool
    ) -> torch.Tensor:
        x = x + self.attention(F.rms_norm(x, x.shape[-1:]), positions, cache, decode)
        return x + self.down(F.silu(self.up(F.rms_norm(x, x.shape[-1:]))))


class LanguageModel(nn.Module):
    """`layers` blocks; the caches are a `<Model>Caches` of as many layers."""

    def __init__(self, layers: int, vocabulary: int = 96, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads=4, dim=16) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, caches, decode: bool = False) -> torch.Tensor:
        """ids [B, L] to logits [B, L, vocabulary]. One column and `decode`: the next token of each row."""
        positions = caches.positions(ids.shape[1])
        x = self.embedding(ids)
        for block, cache in zip(self.blocks, caches.layers, strict=True):
            x = block(x, positions, cache, decode)
        return self.head(F.rms_norm(x, x.shape[-1:]))


@torch.no_grad()
def prefill(model: LanguageModel, caches, prompts: list[list[int]]) -> torch.Tensor:
    """Prompts of different lengths in one forward; the next token of each row, [B, 1]."""
    lengths = [len(prompt) for prompt in prompts]
    ids = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    caches.prepare_prefill(lengths)
    logits = model(ids, caches)
    caches.finalize_prefill()
    last = torch.tensor(lengths) - 1
    return logits[torch.arange(len(prompts)), last].argmax(-1, keepdim=True)


@torch.no_grad()
def generate(
    model: LanguageModel, caches, prompts: list[list[int]], tokens: int
) -> list[list[int]]:
    """The greedy continuation of each prompt."""
    token = prefill(model, caches, prompts)
    columns = [token]
    for _ in range(tokens - 1):
        token = model(token, caches, decode=True)[:, -1].argmax(-1, keepdim=True)
        columns.append(token)
    return torch.cat(columns, 1).tolist()


def main() -> None:
    import kvgen

    package = kvgen.load(POLICY)
    torch.manual_seed(0)
    model = LanguageModel(layers=4).eval()
    caches = package.TargetCaches(batch_size=3)
    prompts = [[1, 2, 3], [4] * 40, [5, 6]]
    for prompt, text in zip(prompts, generate(model, caches, prompts, 60), strict=True):
        print(f"prompt of {len(prompt):2} tokens, then {text[:12]} ...")
    for name, cache in zip(("Local", "Local", "Local", "Global"), caches.layers, strict=True):
        print(f"{name:7}{cache.offset:4} tokens, {cache.nbytes:7,} bytes, {cache.attention}")


if __name__ == "__main__":
    main()
