# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body 3b6b1e9eba40 codegen 1
"""Full's kernels for CPUs: full_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .full_policy import runs


class FullCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 3, 64
    VALUE_DIM = 64
    KEEPS_PLANES = False
    runs = staticmethod(runs)
