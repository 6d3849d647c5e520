# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body 11b8aa115b80 codegen 1
"""Windowed's kernels for CPUs: windowed_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .windowed_policy import runs


class WindowedCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 3, 64
    VALUE_DIM = 64
    KEEPS_PLANES = True
    runs = staticmethod(runs)
