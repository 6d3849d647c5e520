# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body 1624c3dcc250 codegen 1
"""Local's kernels for CPUs: local_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .local_policy import runs


class LocalCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 16, 128
    VALUE_DIM = 128
    KEEPS_PLANES = True
    runs = staticmethod(runs)
