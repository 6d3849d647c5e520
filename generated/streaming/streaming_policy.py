# Written by kvgen from streaming.kv and yours to keep: kvgen claims no right to it. Edit streaming.kv.
# kvgen: streaming.kv source e0ad27c66182 body 7afab27ed1de codegen 1
"""StreamingCache: the last 2044 tokens and the first 4 of each row, in a ring.

    policy Streaming {        # streaming.kv:8
        heads query 32 kv 32  # streaming.kv:9
        dim 128               # streaming.kv:10
        dtype f16             # streaming.kv:11
        window 2044           # streaming.kv:12
        sinks 4               # streaming.kv:13
        storage ring          # streaming.kv:14
        padding left right    # streaming.kv:15
        trim guarded          # streaming.kv:16
    }

Position p < SINKS lives in slot p, any other in slot SINKS + (p - SINKS) % RING: a slot is its position
until the ring wraps.
"""

from __future__ import annotations

import torch

WINDOW = 2044  # streaming.kv:12 window 2044
SINKS = 4  # streaming.kv:13 sinks 4
RING = WINDOW  # slots that are overwritten in turn
SLOTS = SINKS + RING  # slots a row
SCALE = 128**-0.5  # the default: 1 / sqrt(key dim)


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
