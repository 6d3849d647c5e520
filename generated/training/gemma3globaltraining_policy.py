# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 6b3fc3d62f5d codegen 1
"""Gemma3GlobalTrainingCache: nothing is stored; for training and scoring.

    policy Gemma3GlobalTraining {  # training.kv:24
        heads query 4 kv 1         # training.kv:16
        dim 256                    # training.kv:17
        dtype bf16                 # training.kv:18
        window full                # training.kv:25
        stateless                  # training.kv:20
        padding right              # training.kv:21
    }

An append hands its keys and values on to the read; positions are columns.
"""

from __future__ import annotations

import torch

SCALE = 256**-0.5  # the default: 1 / sqrt(key dim)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return q >= k
