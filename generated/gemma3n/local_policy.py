# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body 42e6cd4a3724 codegen 1
"""LocalCache: the last 512 tokens of each row, in a ring.

    policy Local {             # gemma3n.kv:9
        heads query 8 kv 2     # gemma3n.kv:10
        dim 256                # gemma3n.kv:11
        dtype bf16             # gemma3n.kv:12
        scale 1                # gemma3n.kv:13
        window 512             # gemma3n.kv:14
        storage ring slack 7   # gemma3n.kv:15
        padding left right     # gemma3n.kv:16
        trim guarded bypass 7  # gemma3n.kv:17
    }

Position p lives in slot p % RING.
"""

from __future__ import annotations

import torch

WINDOW = 512  # gemma3n.kv:14 window 512
SLACK = 7  # gemma3n.kv:15 storage ring slack 7
RING = WINDOW + SLACK  # slots that are overwritten in turn
SLOTS = RING  # slots a row
BYPASS = 7  # gemma3n.kv:17 trim guarded bypass 7
SCALE = 1.0  # gemma3n.kv:13 scale 1


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
