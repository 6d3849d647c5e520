# Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
# kvgen: llama.kv source 8972495ac203 body e1040878b802 codegen 1
"""FullCache: all tokens of each row.

    policy Full {            # llama.kv:7
        heads query 32 kv 8  # llama.kv:8
        dim 128              # llama.kv:9
        dtype bf16           # llama.kv:10
        storage contiguous   # llama.kv:11
        padding left right   # llama.kv:12
        trim guarded         # llama.kv:13
    }

Position p lives in slot p.
"""

from __future__ import annotations

import torch

SCALE = 128**-0.5  # the default: 1 / sqrt(key dim)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return q >= k


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    return [(first, first, end - first)] if first < end else []
