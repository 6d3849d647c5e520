# Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
# kvgen: mistral.kv source 0d21d37929f3 body e17c4131c218 codegen 1
"""Sliding's kernels for CPUs: sliding_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .sliding_policy import runs


class SlidingCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 8, 128
    VALUE_DIM = 128
    KEEPS_PLANES = True
    runs = staticmethod(runs)
