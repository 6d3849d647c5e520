# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 518e7cc67d95 codegen 1
"""Sliding's kernels for CPUs: sliding_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .sliding_policy import runs


class SlidingCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 8, 64
    VALUE_DIM = 64
    KEEPS_PLANES = True
    runs = staticmethod(runs)
