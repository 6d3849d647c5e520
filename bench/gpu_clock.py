"""Time on a GPU: cold, in the median, and as a replayed graph."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

DEVICE = "cuda"  # what ROCm calls it too


def milliseconds(call: Callable[[], Any], repeats: int = 30) -> float:
    """The median, with the L2 cache emptied before each."""
    trash = torch.empty(256 << 20, dtype=torch.int8, device=DEVICE)
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        trash.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def replayed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a captured graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def copy_rate() -> float:
    """Bytes a second, read and written, of a large copy."""
    source = torch.empty(1 << 30, dtype=torch.int8, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() / (milliseconds(lambda: target.copy_(source)) / 1e3)
