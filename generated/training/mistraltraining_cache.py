# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 483f24260937 codegen 1
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

from typing import Any

import torch

from ._cache import Constant
from ._reads import Read
from ._stateless import StatelessCache
from .mistraltraining_policy import SCALE


class MistralTrainingRead(Read):
    """What the columns of one forward see."""

    __slots__ = ()
    query_heads, key_dim = 32, 128

    def attend(
        self,
        q: torch.Tensor,
        scale: float | None = None,
        return_lse: bool = False,
        sink_logits: torch.Tensor | None = None,
    ) -> Any:
        """Softmax attention of queries q [B, 32, L, 128], of the cache's dtype or float32, to
        [B, 32, L, 128] in q's dtype.

        `scale` None: 1 / sqrt(128). With `return_lse` also the natural logarithm of the softmax's
        denominator, float32 [B, 32, L]. `sink_logits` must be None.
        Raises ValueError for a wrong q, scale or sink_logits and RuntimeError once the read is closed.
        """
        self._check(q, scale)
        if sink_logits is not None:
            raise ValueError("sink_logits must be None: the policy does not declare `sink_logits`")
        scale = SCALE if scale is None else scale
        out, lse = self.kernels.attend(self, q, scale, sink_logits, return_lse)
        return (out, lse) if return_lse else out


class MistralTrainingCache(StatelessCache):
    """Nothing is stored; for training and scoring."""

    query_heads, kv_heads = 32, 8
    key_dim, value_dim = 128, 128
    window = Constant(4096)
    sinks = Constant(0)
    chunk = Constant(None)

    READ = MistralTrainingRead
    DTYPE = torch.bfloat16
    STORED = "stateless"
    SCORES = "query 32"
    KERNELS = {
        "torch": "mistraltraining_torch.MistralTrainingTorch",
        "cpu": "mistraltraining_cpu.MistralTrainingCpu",
        "triton": "mistraltraining_triton.MistralTrainingTriton",
    }
