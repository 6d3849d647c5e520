"""The backends: what each adds to a package. A backend is a module of its name with `files(package)`, and
`decisions(policy)` where it has some of its own.

EVERYWHERE is in every package: its kernels run on all devices, and `auto` falls back on them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvgen.plan import Decision, PackagePlan, PolicyPlan


@dataclass(frozen=True, slots=True)
class Backend:
    """`does`: what it is, for people. `devices`: torch's device types on which `auto` takes it, where it runs."""

    does: str
    devices: tuple[str, ...] = ()


# The one registry, in the order of files and reports.
BACKENDS = {
    "torch": Backend("PyTorch's own operations: runs wherever torch does, and is always emitted"),
    "cpu": Backend("C++17, compiled at first use: needs g++ or clang", ("cpu",)),
    "triton": Backend("Triton kernels for NVIDIA and AMD GPUs: needs triton", ("cuda",)),
}
EVERYWHERE = "torch"


@dataclass(frozen=True, slots=True)
class File:
    """One file of a package: its name in the package, the template, what the template says, its comment sign."""

    name: str
    template: str
    values: dict[str, Any]
    comment: str = "#"


def preferred() -> dict[str, tuple[str, ...]]:
    """By device type, what `auto` tries in turn."""
    devices = dict.fromkeys(device for one in reversed(BACKENDS.values()) for device in one.devices)
    return {
        device: (*(name for name in BACKENDS if device in BACKENDS[name].devices), EVERYWHERE)
        for device in devices
    }


def files(backend: str, package: PackagePlan) -> tuple[File, ...]:
    """The files that a backend adds to a package."""
    found: tuple[File, ...] = importlib.import_module(f"kvgen.backends.{backend}").files(package)
    return found


def decisions(backend: str, policy: PolicyPlan) -> tuple[Decision, ...]:
    """What a backend decides of a policy beyond the plan that all share."""
    module = importlib.import_module(f"kvgen.backends.{backend}")
    found: tuple[Decision, ...] = module.decisions(policy) if hasattr(module, "decisions") else ()
    return found
