# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 5509e1c33e62 codegen 1
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

from typing import Any

import torch

from ._cache import Constant
from ._reads import Read
from ._stateless import StatelessCache
from .gemma3globaltraining_policy import SCALE


class Gemma3GlobalTrainingRead(Read):
    """What the columns of one forward see."""

    __slots__ = ()
    query_heads, key_dim = 4, 256

    def attend(
        self,
        q: torch.Tensor,
        scale: float | None = None,
        return_lse: bool = False,
        sink_logits: torch.Tensor | None = None,
    ) -> Any:
        """Softmax attention of queries q [B, 4, L, 256], of the cache's dtype or float32, to
        [B, 4, L, 256] in q's dtype.

        `scale` None: 1 / sqrt(256). With `return_lse` also the natural logarithm of the softmax's
        denominator, float32 [B, 4, L]. `sink_logits` must be None.
        Raises ValueError for a wrong q, scale or sink_logits and RuntimeError once the read is closed.
        """
        self._check(q, scale)
        if sink_logits is not None:
            raise ValueError("sink_logits must be None: the policy does not declare `sink_logits`")
        scale = SCALE if scale is None else scale
        out, lse = self.kernels.attend(self, q, scale, sink_logits, return_lse)
        return (out, lse) if return_lse else out


class Gemma3GlobalTrainingCache(StatelessCache):
    """Nothing is stored; for training and scoring."""

    query_heads, kv_heads = 4, 1
    key_dim, value_dim = 256, 256
    window = Constant(None)
    sinks = Constant(0)
    chunk = Constant(None)

    READ = Gemma3GlobalTrainingRead
    DTYPE = torch.bfloat16
    STORED = "stateless"
    SCORES = "query 4"
    KERNELS = {
        "torch": "gemma3globaltraining_torch.Gemma3GlobalTrainingTorch",
        "cpu": "gemma3globaltraining_cpu.Gemma3GlobalTrainingCpu",
        "triton": "gemma3globaltraining_triton.Gemma3GlobalTrainingTriton",
    }
