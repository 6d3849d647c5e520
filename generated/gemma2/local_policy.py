# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body c1183635447c codegen 1
"""LocalCache: the last 4096 tokens of each row, in a ring.

    policy Local {                 # gemma2.kv:8
        heads query 32 kv 16       # gemma2.kv:9
        dim 128                    # gemma2.kv:10
        dtype bf16                 # gemma2.kv:11
        scale 0.08333333333333333  # gemma2.kv:12
        softcap 50                 # gemma2.kv:13
        window 4096                # gemma2.kv:14
        storage ring slack 7       # gemma2.kv:15
        padding left right         # gemma2.kv:16
        trim guarded bypass 7      # gemma2.kv:17
    }

Position p lives in slot p % RING.
"""

from __future__ import annotations

import torch

WINDOW = 4096  # gemma2.kv:14 window 4096
SLACK = 7  # gemma2.kv:15 storage ring slack 7
RING = WINDOW + SLACK  # slots that are overwritten in turn
SLOTS = RING  # slots a row
BYPASS = 7  # gemma2.kv:17 trim guarded bypass 7
SCALE = 0.08333333333333333  # gemma2.kv:12 scale 0.08333333333333333
SOFTCAP = 50.0  # gemma2.kv:13 softcap 50


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
