# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 1787e4df938c codegen 1
"""GptOssFullTrainingCache: nothing is stored; for training and scoring.

    policy GptOssFullTraining {  # training.kv:38
        heads query 64 kv 8      # training.kv:29
        dim 64                   # training.kv:30
        dtype bf16               # training.kv:31
        sink_logits              # training.kv:32
        window full              # training.kv:39
        stateless                # training.kv:34
        padding right            # training.kv:35
    }

An append hands its keys and values on to the read; positions are columns.
"""

from __future__ import annotations

import torch

SCALE = 64**-0.5  # the default: 1 / sqrt(key dim)


def seen(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which keys at positions k [.., N] the queries at positions q [.., T] see: bool [.., 1, T, N]. A padding query, at -1, sees none."""
    q, k = q[:, None, :, None], k[:, None, None]
    return q >= k
