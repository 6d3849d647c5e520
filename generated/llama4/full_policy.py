# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body acabf5f02e84 codegen 1
"""FullCache: all tokens of each row.

    policy Full {            # llama4.kv:18
        heads query 40 kv 8  # llama4.kv:19
        dim 128              # llama4.kv:20
        dtype bf16           # llama4.kv:21
        storage contiguous   # llama4.kv:22
        padding left right   # llama4.kv:23
        trim guarded         # llama4.kv:24
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
