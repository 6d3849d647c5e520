# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body 57b53e6788ca codegen 1
"""Global's kernels for CPUs: global_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .global_policy import runs


class GlobalCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 16, 128
    VALUE_DIM = 128
    KEEPS_PLANES = False
    runs = staticmethod(runs)
