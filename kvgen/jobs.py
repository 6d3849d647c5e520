"""The launches of an emitted package's Triton kernels, and how one is compiled for a target without a device.

For `kvgen audit`, which looks at what comes out, and `kvgen build --target`, which keeps it.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kvgen.ir import CachePolicy, Ring, Stateless
from kvgen.loading import import_folder
from kvgen.naming import modules, names

STEP_COLUMNS = 16  # columns that one launch of decode and verify takes at most


_imports = itertools.count()


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with its constants. `parts`: its `out` holds what splits hand to `merge`."""

    name: str
    kernel: Any  # the emitted package's Kernel
    parts: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel of one policy for one target."""

    policy: str
    kernel: str
    target: str
    launch: Any  # the emitted package's Kernel: a function and its constants
    types: dict[str, str]  # of its arguments, as triton spells them

    @property
    def title(self) -> str:
        return f"{self.policy} {self.kernel} {self.target}"


def kernels_of(package: ModuleType, policy: CachePolicy) -> Any:
    """The class with a policy's kernels, in an imported package."""
    module = importlib.import_module(f"{package.__name__}.{modules(policy.name)['triton']}")
    return getattr(module, names(policy.name)["triton"])


def import_package(home: Path) -> ModuleType:
    """The emitted package in a folder as it is now, under a name that hides no other."""
    return import_folder(home, f"kvgen_compiled_{next(_imports)}_{home.name}")


def job(policy: CachePolicy, target: str, launch: Launch) -> Job:
    arguments = launch.kernel.function.arg_names
    types = {name: _type(name, policy, launch.parts) for name in arguments}
    return Job(policy.name, launch.name, target, launch.kernel, types)


# -- what there is to launch


def one_of_each(policy: CachePolicy, kernels: Any, target: str) -> Iterator[Launch]:
    """Every kernel once, verify beside decode, in the layouts that models hand over."""
    if isinstance(policy.storage, Stateless):
        yield from trained(policy, kernels, target)
        return
    own = kernels.ahead(target, _dtype(policy))
    yield Launch("append_step", own.step_kernel(1, False, False))
    yield Launch("append_columns", own.columns_kernel(True, True))
    widths = sorted({1, verify_columns(policy)})
    for columns in widths:
        yield _decode(policy, own, columns, False)
    yield from _merges(policy, own, widths[:1])
    yield Launch("window", own.window_kernel(True, True, _scale(policy), _dtype(policy)))


def all_of_serving(
    policy: CachePolicy, kernels: Any, target: str, widths: tuple[int, ...]
) -> Iterator[Launch]:
    """Every kernel that appends and reads of these widths launch, heads first in memory or columns first."""
    if isinstance(policy.storage, Stateless):
        yield from trained(policy, kernels, target)
        return
    own = kernels.ahead(target, _dtype(policy))
    steps = [
        (width, first) for width in widths for first in ((False, True) if width > 1 else (False,))
    ]
    for width, first in steps:
        yield Launch("append_step", own.step_kernel(width, first, first))
        yield _decode(policy, own, width, first)
    yield from _merges(policy, own, widths)
    for first in (False, True):
        yield Launch("append_columns", own.columns_kernel(first, first))
        for held in (False, True) if isinstance(policy.storage, Ring) else (True,):
            kernel = own.window_kernel(first, held, _scale(policy), _dtype(policy))
            yield Launch("window", kernel)


def trained(policy: CachePolicy, kernels: Any, target: str) -> Iterator[Launch]:
    own, scale, dtype = kernels.ahead(target), _scale(policy), _dtype(policy)
    yield Launch("window", own.window_kernel(scale, dtype))
    yield Launch("delta", own.delta_kernel(False, dtype))
    if kernels.sinks:
        yield Launch("sink_gradients", own.sink_kernel(scale, dtype))
    yield Launch("key_gradients", own.key_kernel(scale, dtype))
    yield Launch("query_gradients", own.query_kernel(scale, dtype))


def _decode(policy: CachePolicy, own: Any, columns: int, columns_first: bool) -> Launch:
    kernel = own.decode_kernel(columns, columns_first, False, _scale(policy), _dtype(policy))
    name = "decode" if columns == 1 else "verify"
    return Launch(name, kernel, kernel.constants["SPLITS"] > 1)


def _merges(policy: CachePolicy, own: Any, widths: Any) -> Iterator[Launch]:
    if _decode(policy, own, 1, False).parts:
        for columns in widths:
            yield Launch("merge", own.merge_kernel(columns, _dtype(policy)))


def verify_columns(policy: CachePolicy) -> int:
    """Columns of the widest verify window: as many as may stand in storage at once."""
    slack = policy.storage.slack_slots if isinstance(policy.storage, Ring) else STEP_COLUMNS
    return min(STEP_COLUMNS, slack + 1)


def _scale(policy: CachePolicy) -> float:
    return policy.scores.scale or policy.heads.key_dim**-0.5


def _dtype(policy: CachePolicy) -> Any:
    return getattr(untyped("torch"), policy.dtype.torch_name)


# -- types of arguments

ELEMENTS = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
NUMBERS = {"places": "*i32", "lengths": "*i32", "slots": "i32", "columns": "i32"}
FLOATS = {
    "sink_logits",
    "lse",
    "parts",
    "logs",
    "deltas",
    "d_lse",
    "d_logits",
    "sink_dk",
    "sink_dv",
}


def _type(argument: str, policy: CachePolicy, parts: bool) -> str:
    if argument.isupper():
        return "constexpr"
    if argument in NUMBERS:
        return NUMBERS[argument]
    if argument in FLOATS or (argument == "out" and parts):
        return "*fp32"
    return f"*{ELEMENTS[policy.dtype.value]}"


# -- compiling


def untyped(name: str) -> Any:
    """A module without types, torch or triton; only what compiles or measures kernels imports them."""
    return importlib.import_module(name)


def compile_job(asked: Job) -> Any:
    """triton's compiled kernel, as the JIT would compile it for tensors on 16-byte boundaries."""
    triton, amd = untyped("triton"), asked.target.startswith("gfx")
    gpu_target = untyped("triton.backends.compiler").GPUTarget
    constants = asked.launch.constants
    order = asked.launch.function.arg_names
    facts = [["tt.divisibility", 16], *([["tt.pointer_range", 32]] if amd else [])]
    pointers = [name for name, kind in asked.types.items() if kind.startswith("*")]
    source = untyped("triton.compiler").ASTSource(
        fn=asked.launch.function,
        signature=asked.types,
        constexprs={(order.index(name),): constants[name] for name in constants if name.isupper()},
        attrs={(order.index(name),): facts for name in pointers},
    )
    target = (
        gpu_target("hip", asked.target, 64)
        if amd
        else gpu_target("cuda", int(asked.target.removeprefix("sm_")), 32)
    )
    options = {name: value for name, value in constants.items() if not name.isupper()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of triton's own making, about its own API
        return triton.compile(source, target=target, options=options)
