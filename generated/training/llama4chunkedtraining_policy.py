# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 3dc2a47e384a codegen 1
"""Llama4ChunkedTrainingCache: nothing is stored; for training and scoring.

    policy Llama4ChunkedTraining {  # training.kv:42
        heads query 40 kv 8         # training.kv:43
        dim 128                     # training.kv:44
        dtype bf16                  # training.kv:45
        chunk 8192                  # training.kv:46
        stateless                   # training.kv:47
        padding right               # training.kv:48
    }

An append hands its keys and values on to the read; positions are columns.
"""

from __future__ import annotations

import torch

CHUNK = 8192  # training.kv:46 chunk 8192
SCALE = 128**-0.5  # the default: 1 / sqrt(key dim)


def first_seen(p: int) -> int:
    """The first position that the query at `p` sees."""
    return max(0, p - p % CHUNK)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return (q >= k) & (k // CHUNK == q // CHUNK)
