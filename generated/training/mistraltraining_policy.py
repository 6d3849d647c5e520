# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 07a16cc0715a codegen 1
"""MistralTrainingCache: nothing is stored; for training and scoring.

    policy MistralTraining {  # training.kv:6
        heads query 32 kv 8   # training.kv:7
        dim 128               # training.kv:8
        dtype bf16            # training.kv:9
        window 4096           # training.kv:10
        stateless             # training.kv:11
        padding right         # training.kv:12
    }

An append hands its keys and values on to the read; positions are columns.
"""

from __future__ import annotations

import torch

WINDOW = 4096  # training.kv:10 window 4096
SCALE = 128**-0.5  # the default: 1 / sqrt(key dim)


def first_seen(p: int) -> int:
    """The first position that the query at `p` sees."""
    return max(0, p - WINDOW + 1)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return (q >= k) & (q - k < WINDOW)
