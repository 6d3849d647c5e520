# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 4a77ff26bc22 codegen 1
"""Gemma3LocalTrainingCache: nothing is stored; for training and scoring.

    policy Gemma3LocalTraining {  # training.kv:15
        heads query 4 kv 1        # training.kv:16
        dim 256                   # training.kv:17
        dtype bf16                # training.kv:18
        window 512                # training.kv:19
        stateless                 # training.kv:20
        padding right             # training.kv:21
    }

An append hands its keys and values on to the read; positions are columns.
"""

from __future__ import annotations

import torch

WINDOW = 512  # training.kv:19 window 512
SCALE = 256**-0.5  # the default: 1 / sqrt(key dim)


def first_seen(p: int) -> int:
    """The first position that the query at `p` sees."""
    return max(0, p - WINDOW + 1)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return (q >= k) & (q - k < WINDOW)
