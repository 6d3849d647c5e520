# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body b21c604a4475 codegen 1
"""GlobalCache: all tokens of each row.

    policy Global {                # gemma2.kv:20
        heads query 32 kv 16       # gemma2.kv:9
        dim 128                    # gemma2.kv:10
        dtype bf16                 # gemma2.kv:11
        scale 0.08333333333333333  # gemma2.kv:12
        softcap 50                 # gemma2.kv:13
        window full                # gemma2.kv:21
        storage contiguous         # gemma2.kv:22
        padding left right         # gemma2.kv:16
        trim guarded               # gemma2.kv:23
    }

Position p lives in slot p.
"""

from __future__ import annotations

import torch

SCALE = 0.08333333333333333  # gemma2.kv:12 scale 0.08333333333333333
SOFTCAP = 50.0  # gemma2.kv:13 softcap 50


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return q >= k


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    return [(first, first, end - first)] if first < end else []
