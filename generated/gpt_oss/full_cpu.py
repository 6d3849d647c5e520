# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body a969c4566ff5 codegen 1
"""Full's kernels for CPUs: full_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .full_policy import runs


class FullCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 8, 64
    VALUE_DIM = 64
    KEEPS_PLANES = False
    runs = staticmethod(runs)
