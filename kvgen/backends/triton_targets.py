"""The GPU families that tile sizes are decided for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU family, as far as plans differ: shared memory a program, and a chip's multiprocessors and bandwidth."""

    name: str
    shared_bytes: int
    multiprocessors: int
    terabytes_per_second: float

    @property
    def amd(self) -> bool:
        return self.name.startswith("gfx")


TARGETS = (
    Target("sm_80", 163 << 10, 108, 2.04),  # A100 80 GB
    Target("sm_90", 227 << 10, 132, 3.35),  # H100 SXM
    Target("sm_100", 227 << 10, 148, 8.0),  # B200
    Target("sm_120", 99 << 10, 170, 1.79),  # RTX 5090; the tiles also fit sm_86 and sm_89
    Target("gfx942", 64 << 10, 304, 5.3),  # MI300X
    Target("gfx950", 160 << 10, 256, 8.0),  # MI355X
)
INTERPRETER = Target(
    "interpreter", 1 << 30, 4, 0.0
)  # small tiles, a few splits: each way through a kernel is short
