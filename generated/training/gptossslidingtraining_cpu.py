# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body da21535b0e9f codegen 1
"""GptOssSlidingTraining's kernels for CPUs: nothing is stored, so it attends with torch's own operations, gradients included."""

from __future__ import annotations

import torch

from .gptossslidingtraining_torch import GptOssSlidingTrainingTorch


class GptOssSlidingTrainingCpu(GptOssSlidingTrainingTorch):
    """The torch kernels, on CPU tensors only."""

    name = "cpu, torch tiles"

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        if device.type != "cpu":
            raise ImportError(f"the cpu backend needs CPU tensors, not {device}; use 'auto'")
        super().__init__(batch_size, dtype, device)
