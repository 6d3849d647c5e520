# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 2a2bb96446b6 codegen 1
"""SlidingCache: the last 128 tokens of each row, in a ring.

    policy Sliding {           # gpt_oss.kv:8
        heads query 64 kv 8    # gpt_oss.kv:9
        dim 64                 # gpt_oss.kv:10
        dtype bf16             # gpt_oss.kv:11
        sink_logits            # gpt_oss.kv:12
        window 128             # gpt_oss.kv:13
        storage ring slack 7   # gpt_oss.kv:14
        padding left right     # gpt_oss.kv:15
        trim guarded bypass 7  # gpt_oss.kv:16
    }

Position p lives in slot p % RING.
"""

from __future__ import annotations

import torch

WINDOW = 128  # gpt_oss.kv:13 window 128
SLACK = 7  # gpt_oss.kv:14 storage ring slack 7
RING = WINDOW + SLACK  # slots that are overwritten in turn
SLOTS = RING  # slots a row
BYPASS = 7  # gpt_oss.kv:16 trim guarded bypass 7
SCALE = 64**-0.5  # the default: 1 / sqrt(key dim)


def first_seen(p: int) -> int:
    """The first position that the query at `p` sees."""
    return max(0, p - WINDOW + 1)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return (q >= k) & (q - k < WINDOW)


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    first = max(first, end - RING)  # of more than a ring, the newest
    if first >= end:
        return []
    slot = first % RING
    ahead = min(end - first, RING - slot)  # slots left before the ring wraps
    wrapped = [(first + ahead, 0, end - first - ahead)] if ahead < end - first else []
    return [(first, slot, ahead), *wrapped]
