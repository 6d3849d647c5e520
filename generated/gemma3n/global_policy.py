# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body 52a94af60355 codegen 1
"""GlobalCache: all tokens of each row.

    policy Global {         # gemma3n.kv:20
        heads query 8 kv 2  # gemma3n.kv:10
        dim 256             # gemma3n.kv:11
        dtype bf16          # gemma3n.kv:12
        scale 1             # gemma3n.kv:13
        window full         # gemma3n.kv:21
        storage contiguous  # gemma3n.kv:22
        padding left right  # gemma3n.kv:16
        trim guarded        # gemma3n.kv:23
    }

Position p lives in slot p.
"""

from __future__ import annotations

import torch

SCALE = 1.0  # gemma3n.kv:13 scale 1


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return q >= k


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    return [(first, first, end - first)] if first < end else []
