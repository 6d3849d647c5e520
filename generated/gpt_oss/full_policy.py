# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 95bbe7a2bce0 codegen 1
"""FullCache: all tokens of each row.

    policy Full {            # gpt_oss.kv:19
        heads query 64 kv 8  # gpt_oss.kv:9
        dim 64               # gpt_oss.kv:10
        dtype bf16           # gpt_oss.kv:11
        sink_logits          # gpt_oss.kv:12
        window full          # gpt_oss.kv:20
        storage contiguous   # gpt_oss.kv:21
        padding left right   # gpt_oss.kv:15
        trim guarded         # gpt_oss.kv:22
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
