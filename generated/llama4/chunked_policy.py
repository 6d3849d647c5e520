# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body f3928620e7ab codegen 1
"""ChunkedCache: the last 8192 tokens of each row, in a ring.

    policy Chunked {           # llama4.kv:8
        heads query 40 kv 8    # llama4.kv:9
        dim 128                # llama4.kv:10
        dtype bf16             # llama4.kv:11
        chunk 8192             # llama4.kv:12
        storage ring slack 7   # llama4.kv:13
        padding left right     # llama4.kv:14
        trim guarded bypass 7  # llama4.kv:15
    }

Position p lives in slot p % RING.
"""

from __future__ import annotations

import torch

CHUNK = 8192  # llama4.kv:12 chunk 8192
SLACK = 7  # llama4.kv:13 storage ring slack 7
RING = CHUNK + SLACK  # slots that are overwritten in turn
SLOTS = RING  # slots a row
BYPASS = 7  # llama4.kv:15 trim guarded bypass 7
SCALE = 128**-0.5  # the default: 1 / sqrt(key dim)


def first_seen(p: int) -> int:
    """The first position that the query at `p` sees."""
    return max(0, p - p % CHUNK)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return (q >= k) & (k // CHUNK == q // CHUNK)


def runs(first: int, end: int) -> list[tuple[int, int, int]]:
    """Where positions [first, end) are stored: (position, slot, tokens) of each stretch of slots."""
    first = max(first, end - RING)  # of more than a ring, the newest
    if first >= end:
        return []
    slot = first % RING
    ahead = min(end - first, RING - slot)  # slots left before the ring wraps
    wrapped = [(first + ahead, 0, end - first - ahead)] if ahead < end - first else []
    return [(first, slot, ahead), *wrapped]
