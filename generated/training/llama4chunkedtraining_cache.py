# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body fee4990d7998 codegen 1
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

from typing import Any

import torch

from ._cache import Constant
from ._reads import Read
from ._stateless import StatelessCache
from .llama4chunkedtraining_policy import SCALE


class Llama4ChunkedTrainingRead(Read):
    """What the columns of one forward see."""

    __slots__ = ()
    query_heads, key_dim = 40, 128

    def attend(
        self,
        q: torch.Tensor,
        scale: float | None = None,
        return_lse: bool = False,
        sink_logits: torch.Tensor | None = None,
    ) -> Any:
        """Softmax attention of queries q [B, 40, L, 128], of the cache's dtype or float32, to
        [B, 40, L, 128] in q's dtype.

        `scale` None: 1 / sqrt(128). With `return_lse` also the natural logarithm of the softmax's
        denominator, float32 [B, 40, L]. `sink_logits` must be None.
        Raises ValueError for a wrong q, scale or sink_logits and RuntimeError once the read is closed.
        """
        self._check(q, scale)
        if sink_logits is not None:
            raise ValueError("sink_logits must be None: the policy does not declare `sink_logits`")
        scale = SCALE if scale is None else scale
        out, lse = self.kernels.attend(self, q, scale, sink_logits, return_lse)
        return (out, lse) if return_lse else out


class Llama4ChunkedTrainingCache(StatelessCache):
    """Nothing is stored; for training and scoring."""

    query_heads, kv_heads = 40, 8
    key_dim, value_dim = 128, 128
    window = Constant(None)
    sinks = Constant(0)
    chunk = Constant(8192)

    READ = Llama4ChunkedTrainingRead
    DTYPE = torch.bfloat16
    STORED = "stateless"
    SCORES = "query 40"
    KERNELS = {
        "torch": "llama4chunkedtraining_torch.Llama4ChunkedTrainingTorch",
        "cpu": "llama4chunkedtraining_cpu.Llama4ChunkedTrainingCpu",
        "triton": "llama4chunkedtraining_triton.Llama4ChunkedTrainingTriton",
    }
