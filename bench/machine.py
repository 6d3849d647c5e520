"""A machine's own rates, and contenders that take turns beside them."""

from __future__ import annotations

import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

BF16, F32 = torch.bfloat16, torch.float32
COLD_BYTES = 256 << 20


@dataclass
class Result:
    """Seconds of every turn by contender, and the rates of that turn.

    `flops` are those of one column; `columns`: how many some of our own contenders have. `rule`: what `over_bound` should be
    at most.
    """

    name: str
    bytes: int
    flops: int
    columns: dict[str, int] = field(default_factory=dict)
    rule: float | None = None
    seconds: dict[str, list[float]] = field(default_factory=dict)
    read: list[float] = field(default_factory=list)
    gemm: list[float] = field(default_factory=list)

    def over(self, other: str, ours: str = "kvgen") -> list[float]:
        return [a / b for a, b in zip(self.seconds[other], self.seconds[ours], strict=True)]

    def of_read(self) -> list[float]:
        return [self.bytes / t / r for t, r in zip(self.seconds["kvgen"], self.read, strict=True)]

    def of_gemm(self) -> list[float]:
        return [self.flops / t / g for t, g in zip(self.seconds["kvgen"], self.gemm, strict=True)]

    def over_bound(self, name: str = "kvgen") -> list[float]:
        """Time over what reading or multiplying takes at least: max(bytes / read rate, flops / GEMM rate)."""
        flops = self.flops * self.columns.get(name, 1)
        turns = zip(self.seconds[name], self.read, self.gemm, strict=True)
        return [t / max(self.bytes / r, flops / g) for t, r, g in turns]

    def bounds(self) -> dict[str, list[float]]:
        """`over_bound` of all that is ours, where the machine's rates are known."""
        return {n: self.over_bound(n) for n in ("kvgen", *self.columns)} if self.read else {}

    def as_json(self) -> dict[str, Any]:
        over_bound = {name: statistics.median(found) for name, found in self.bounds().items()}
        return {**asdict(self), "over_bound": over_bound}


class Machine:
    """Its rates, measured whenever asked: `torch.sum` of 256 MB of float32; the faster of a float32 and a bfloat16 product."""

    def __init__(self) -> None:
        self.memory = torch.randn(COLD_BYTES // 4)
        self.factors = [torch.randn(1024, 1024).to(dtype) for dtype in (F32, BF16)]
        seconds = [best_of(2, lambda x=x: x @ x) for x in self.factors]
        self.factor = self.factors[seconds.index(min(seconds))]

    def read(self) -> float:
        return COLD_BYTES / timed(self.memory.sum)

    def gemm(self) -> float:
        return 2 * 1024**3 / best_of(3, lambda: self.factor @ self.factor)


def device_name() -> str:
    """The processor, its cores and its vectors, as `AMD EPYC, 2 cores, AVX2`."""
    found = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (match := re.search(r"model name\s*:\s*(.+)", info.read_text("utf-8"))):
        found = match[1].strip()
    return f"{found}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best_of(repeats: int, call: Callable[[], Any]) -> float:
    return min(timed(call) for _ in range(repeats))


def turns(
    result: Result, machine: Machine, contenders: dict[str, Callable[[], float]], count: int
) -> Result:
    """Each contender gives its seconds; the first turn warms up and is forgotten."""
    for turn in range(count + 1):
        read, gemm = machine.read(), machine.gemm()
        taken = {name: call() for name, call in contenders.items()}
        if turn:
            result.read.append(read)
            result.gemm.append(gemm)
            for name, seconds in taken.items():
                result.seconds.setdefault(name, []).append(seconds)
    return result


def spread(values: list[float], digits: int = 2) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
