# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body cd7e75b8d297 codegen 1
"""Global's kernels for CPUs: global_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .global_policy import runs


class GlobalCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 1, 256
    VALUE_DIM = 256
    KEEPS_PLANES = False
    runs = staticmethod(runs)
