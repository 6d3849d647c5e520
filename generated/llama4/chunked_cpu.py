# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body 9a09cabedf54 codegen 1
"""Chunked's kernels for CPUs: chunked_cpu.cpp, compiled at first use."""

from __future__ import annotations

from pathlib import Path

from ._cpu import CpuKernels
from .chunked_policy import runs


class ChunkedCpu(CpuKernels):
    """Appends into storage and attends to it; a cache has one of these."""

    SOURCE = Path(__file__).with_suffix(".cpp")
    HEADS, KEY_DIM = 8, 128
    VALUE_DIM = 128
    KEEPS_PLANES = True
    runs = staticmethod(runs)
