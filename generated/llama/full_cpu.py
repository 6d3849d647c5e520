# Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
# kvgen: llama.kv source 8972495ac203 body 8bcb6d18bed2 codegen 1
"""Full's kernels for CPUs: full_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .full_policy import runs


class FullCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 8, 128
    VALUE_DIM = 128
    KEEPS_PLANES = False
    runs = staticmethod(runs)
