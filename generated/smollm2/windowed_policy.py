# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body bf0e1227e15a codegen 1
"""WindowedCache: the last 256 tokens and the first 4 of each row, in a ring.

    policy Windowed {          # smollm2.kv:20
        heads query 9 kv 3     # smollm2.kv:8
        dim 64                 # smollm2.kv:9
        dtype bf16             # smollm2.kv:10
        window 256             # smollm2.kv:21
        sinks 4                # smollm2.kv:22
        storage ring slack 7   # smollm2.kv:23
        padding left right     # smollm2.kv:12
        trim guarded bypass 7  # smollm2.kv:24
    }

Position p < SINKS lives in slot p, any other in slot SINKS + (p - SINKS) % RING: a slot is its position
until the ring wraps.
"""

from __future__ import annotations

import torch

WINDOW = 256  # smollm2.kv:21 window 256
SINKS = 4  # smollm2.kv:22 sinks 4
SLACK = 7  # smollm2.kv:23 storage ring slack 7
RING = WINDOW + SLACK  # slots that are overwritten in turn
SLOTS = SINKS + RING  # slots a row
BYPASS = 7  # smollm2.kv:24 trim guarded bypass 7
SCALE = 64**-0.5  # the default: 1 / sqrt(key dim)


def first_seen(p: int) -> int:
    """The first position that the query at `p` sees, sinks aside."""
    return max(0, p - WINDOW + 1)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return (q >= k) & ((q - k < WINDOW) | (k < SINKS))


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    sinks = [(first, first, min(end, SINKS) - first)] if first < min(end, SINKS) else []
    first = max(first, SINKS, end - RING)
    if first >= end:
        return sinks
    slot = SINKS + (first - SINKS) % RING
    ahead = min(end - first, SLOTS - slot)  # slots left before the ring wraps
    wrapped = [(first + ahead, SINKS, end - first - ahead)] if ahead < end - first else []
    return [*sinks, (first, slot, ahead), *wrapped]
