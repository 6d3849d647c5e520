# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 7b727fa749d6 codegen 1
"""Gemma3LocalTraining's kernels for CPUs: nothing is stored, so it attends with torch's own operations, gradients included."""

from __future__ import annotations

import torch

from .gemma3localtraining_torch import Gemma3LocalTrainingTorch


class Gemma3LocalTrainingCpu(Gemma3LocalTrainingTorch):
    """The torch kernels, on CPU tensors only."""

    name = "cpu, torch tiles"

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        if device.type != "cpu":
            raise ImportError(f"the cpu backend needs CPU tensors, not {device}; use 'auto'")
        super().__init__(batch_size, dtype, device)
