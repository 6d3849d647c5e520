# Written by kvgen from streaming.kv and yours to keep: kvgen claims no right to it. Edit streaming.kv.
# kvgen: streaming.kv source e0ad27c66182 body d44214028c5f codegen 1
"""Streaming's kernels for CPUs: streaming_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .streaming_policy import runs


class StreamingCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 32, 128
    VALUE_DIM = 128
    KEEPS_PLANES = True
    runs = staticmethod(runs)
