# Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
# kvgen: mistral.kv source 0d21d37929f3 body e75bd6e124f4 codegen 1
"""SlidingCache: the last 4096 tokens of each row, in a ring.

    policy Sliding {           # mistral.kv:8
        heads query 32 kv 8    # mistral.kv:9
        dim 128                # mistral.kv:10
        dtype bf16             # mistral.kv:11
        window 4096            # mistral.kv:12
        storage ring slack 7   # mistral.kv:13
        padding left right     # mistral.kv:14
        trim guarded bypass 7  # mistral.kv:15
    }

Position p lives in slot p % RING.
"""

from __future__ import annotations

import torch

WINDOW = 4096  # mistral.kv:12 window 4096
SLACK = 7  # mistral.kv:13 storage ring slack 7
RING = WINDOW + SLACK  # slots that are overwritten in turn
SLOTS = RING  # slots a row
BYPASS = 7  # mistral.kv:15 trim guarded bypass 7
SCALE = 128**-0.5  # the default: 1 / sqrt(key dim)


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
