# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body 4a3ee5ec10c5 codegen 1
"""LocalCache: the last 512 tokens of each row, in a ring.

    policy Local {             # gemma3.kv:7
        heads query 4 kv 1     # gemma3.kv:8
        dim 256                # gemma3.kv:9
        dtype bf16             # gemma3.kv:10
        window 512             # gemma3.kv:11
        storage ring slack 7   # gemma3.kv:12
        padding left right     # gemma3.kv:13
        trim guarded bypass 7  # gemma3.kv:14
    }

Position p lives in slot p % RING.
"""

from __future__ import annotations

import torch

WINDOW = 512  # gemma3.kv:11 window 512
SLACK = 7  # gemma3.kv:12 storage ring slack 7
RING = WINDOW + SLACK  # slots that are overwritten in turn
SLOTS = RING  # slots a row
BYPASS = 7  # gemma3.kv:14 trim guarded bypass 7
SCALE = 256**-0.5  # the default: 1 / sqrt(key dim)


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
