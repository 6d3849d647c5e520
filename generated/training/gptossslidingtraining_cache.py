# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 204125c22f17 codegen 1
"""GptOssSlidingTrainingCache: nothing is stored; for training and scoring.

    policy GptOssSlidingTraining {  # training.kv:28
        heads query 64 kv 8         # training.kv:29
        dim 64                      # training.kv:30
        dtype bf16                  # training.kv:31
        sink_logits                 # training.kv:32
        window 128                  # training.kv:33
        stateless                   # training.kv:34
        padding right               # training.kv:35
    }

An append hands its keys and values on to the read; positions are columns.
"""

from __future__ import annotations

from typing import Any

import torch

from ._cache import Constant
from ._reads import Read
from ._stateless import StatelessCache
from .gptossslidingtraining_policy import SCALE


class GptOssSlidingTrainingRead(Read):
    """What the columns of one forward see."""

    __slots__ = ()
    query_heads, key_dim = 64, 64

    def attend(
        self,
        q: torch.Tensor,
        scale: float | None = None,
        return_lse: bool = False,
        sink_logits: torch.Tensor | None = None,
    ) -> Any:
        """Softmax attention of queries q [B, 64, L, 64], of the cache's dtype or float32, to
        [B, 64, L, 64] in q's dtype.

        `scale` None: 1 / sqrt(64). With `return_lse` also the natural logarithm of the softmax's
        denominator, float32 [B, 64, L]. `sink_logits` [64] join the denominator once, neither scaled nor capped.
        Raises ValueError for a wrong q, scale or sink_logits and RuntimeError once the read is closed.
        """
        self._check(q, scale)
        self._check_sink_logits(sink_logits)
        scale = SCALE if scale is None else scale
        out, lse = self.kernels.attend(self, q, scale, sink_logits, return_lse)
        return (out, lse) if return_lse else out


class GptOssSlidingTrainingCache(StatelessCache):
    """Nothing is stored; for training and scoring."""

    query_heads, kv_heads = 64, 8
    key_dim, value_dim = 64, 64
    window = Constant(128)
    sinks = Constant(0)
    chunk = Constant(None)

    READ = GptOssSlidingTrainingRead
    DTYPE = torch.bfloat16
    STORED = "stateless"
    SCORES = "query 64, sink logits"
    KERNELS = {
        "torch": "gptossslidingtraining_torch.GptOssSlidingTrainingTorch",
        "cpu": "gptossslidingtraining_cpu.GptOssSlidingTrainingCpu",
        "triton": "gptossslidingtraining_triton.GptOssSlidingTrainingTriton",
    }
