# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body d09986582296 codegen 1
"""FullCache: all tokens of each row.

    policy Full {           # smollm2.kv:7
        heads query 9 kv 3  # smollm2.kv:8
        dim 64              # smollm2.kv:9
        dtype bf16          # smollm2.kv:10
        storage contiguous  # smollm2.kv:11
        padding left right  # smollm2.kv:12
        trim guarded        # smollm2.kv:13
    }

Position p lives in slot p.
"""

from __future__ import annotations

import torch

SCALE = 64**-0.5  # the default: 1 / sqrt(key dim)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return q >= k


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    return [(first, first, end - first)] if first < end else []
