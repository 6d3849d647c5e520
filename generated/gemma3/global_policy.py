# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body 5d01a951ae16 codegen 1
"""GlobalCache: all tokens of each row.

    policy Global {         # gemma3.kv:17
        heads query 4 kv 1  # gemma3.kv:18
        dim 256             # gemma3.kv:19
        dtype bf16          # gemma3.kv:20
        storage contiguous  # gemma3.kv:21
        padding left right  # gemma3.kv:22
        trim guarded        # gemma3.kv:23
    }

Position p lives in slot p.
"""

from __future__ import annotations

import torch

SCALE = 256**-0.5  # the default: 1 / sqrt(key dim)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return q >= k


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    return [(first, first, end - first)] if first < end else []
