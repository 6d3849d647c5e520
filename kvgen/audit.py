"""Compile every emitted Triton kernel for every target, on a machine without a GPU, and hold the result against a budget.

Needs triton (its wheel brings ptxas, cuobjdump and LLVM for AMD), never a driver. What a figure means stands at `Figures`;
the budget is audit_budget.json beside this file.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvgen import machine_code
from kvgen.backends import triton_tiles as plans
from kvgen.emit import emit
from kvgen.ir import CachePolicy, Program, Ring, Stateless
from kvgen.naming import modules, names
from kvgen.plan import plan

BUDGET = Path(__file__).with_name("audit_budget.json")
TARGETS = {target.name: target for target in plans.TARGETS}
VERIFY_COLUMNS = 16
FIRST_NEEDED = {"append_step", "append_columns", "decode", "merge", "window"}


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel of one policy for one target."""

    policy: str
    kernel: str
    target: str
    launch: Any  # the emitted package's Kernel: a function and its constants
    types: dict[str, str]  # of its arguments

    @property
    def title(self) -> str:
        return f"{self.policy} {self.kernel} {self.target}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a compiled kernel is made of.

    `load_bytes`: the narrowest load of keys or values in the main loop, the clean one; 0 without such a loop.
    `instructions`: of that loop, the shortest backward jump with matrix instructions in it.
    `seconds`: processor time of a cold compilation.
    """

    policy: str
    kernel: str
    target: str
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    shared_limit: int
    load_bytes: int
    matrix: str
    instructions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure beyond its budget."""

    policy: str
    kernel: str
    target: str
    what: str
    found: float | str
    allowed: float | str

    def __str__(self) -> str:
        return f"{self.policy} {self.kernel} {self.target}: {self.what} {self.found}, allowed {self.allowed}"


# -- what to compile


def jobs(program: Program, targets: tuple[str, ...], folder: Path) -> Iterator[Job]:
    """Every kernel of a program for these targets; its package is written to `folder`, to be imported from there."""
    for path, text in emit(plan(program, ("triton",))).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        for policy in program.policies:
            module = importlib.import_module(f"{program.stem}.{modules(policy.name)['triton']}")
            kernels = getattr(module, names(policy.name)["triton"])
            for target in targets:
                yield from policy_jobs(policy, kernels, target)
    finally:
        sys.path.remove(str(folder))


def policy_jobs(policy: CachePolicy, kernels: Any, target: str) -> Iterator[Job]:
    for name, launch, parts in _launches(policy, kernels, target):
        types = {argument: _type(argument, policy, parts) for argument in launch.function.arg_names}
        yield Job(policy.name, name, target, launch, types)


def _launches(policy: CachePolicy, kernels: Any, target: str) -> Iterator[tuple[str, Any, bool]]:
    """(name, kernel, whether `out` holds parts for `merge`)."""
    import torch

    dtype = getattr(torch, policy.dtype.torch_name)
    scale = policy.scores.scale or policy.heads.key_dim**-0.5
    if isinstance(policy.storage, Stateless):
        own = kernels.ahead(target)
        yield "window", own.window_kernel(scale, dtype), False
        yield "delta", own.delta_kernel(False, dtype), False
        if kernels.sinks:
            yield "sink_gradients", own.sink_kernel(scale, dtype), False
        yield "key_gradients", own.key_kernel(scale, dtype), False
        yield "query_gradients", own.query_kernel(scale, dtype), False
        return
    own = kernels.ahead(target, dtype)
    yield "append_step", own.step_kernel(1, False, False), False
    yield "append_columns", own.columns_kernel(True, True), False
    for columns in (1, verify_columns(policy)):
        kernel, _ = own.decode_kernel(columns, False, False, scale, dtype)
        parts = kernel.constants["SPLITS"] > 1
        yield "decode" if columns == 1 else "verify", kernel, parts
        if parts and columns == 1:
            yield "merge", own.merge_kernel(1, dtype), False
        if verify_columns(policy) == 1:
            break
    yield "window", own.window_kernel(True, True, scale, dtype), False


def verify_columns(policy: CachePolicy) -> int:
    """Columns of the verify kernel looked at: as many as may stand in storage at once."""
    slack = policy.storage.slack_slots if isinstance(policy.storage, Ring) else VERIFY_COLUMNS
    return min(VERIFY_COLUMNS, slack + 1)


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
    """A module of triton, which has no types."""
    return importlib.import_module(name)


def compile_job(job: Job) -> Figures:
    """Compile as the JIT would for 16-byte aligned tensors and read the result."""
    triton = untyped("triton")
    gpu_target = untyped("triton.backends.compiler").GPUTarget
    ast_source = untyped("triton.compiler").ASTSource
    amd = job.target.startswith("gfx")
    options = {name: value for name, value in job.launch.constants.items() if not name.isupper()}
    constants = {name: value for name, value in job.launch.constants.items() if name.isupper()}
    order = job.launch.function.arg_names
    facts = [["tt.divisibility", 16], *([["tt.pointer_range", 32]] if amd else [])]
    pointers = [name for name, kind in job.types.items() if kind.startswith("*")]
    source = ast_source(
        fn=job.launch.function,
        signature=job.types,
        constexprs={(order.index(name),): value for name, value in constants.items()},
        attrs={(order.index(name),): facts for name in pointers},
    )
    target = (
        gpu_target("hip", job.target, 64) if amd else gpu_target("cuda", int(job.target[3:]), 32)
    )
    begin = _processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of triton's own making, about its own API
        compiled = triton.compile(source, target=target, options=options)
    seconds = _processor_seconds() - begin
    read = machine_code.read_gcn if amd else machine_code.read_sass
    return Figures(
        policy=job.policy,
        kernel=job.kernel,
        target=job.target,
        shared_bytes=compiled.metadata.shared,
        shared_limit=TARGETS[job.target].shared_bytes,
        seconds=round(seconds, 2),
        **read(compiled.asm),
    )


def _processor_seconds() -> float:
    """Of this process and the assemblers it ran: what else a machine does must not change the verdict."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


# -- budget


def over_budget(figures: Figures, policy: CachePolicy, budget: dict[str, Any]) -> list[Finding]:
    """What a kernel has more of than allowed, or less of than asked."""
    found: list[tuple[str, Any, Any]] = []
    for name in ("spill_bytes", "stack_bytes"):
        if getattr(figures, name) > budget[name]:
            found.append((name, getattr(figures, name), budget[name]))
    if figures.shared_bytes > figures.shared_limit:
        found.append(("shared_bytes", figures.shared_bytes, figures.shared_limit))
    if figures.instructions:
        found += _loop_findings(figures, policy, budget)
    return [Finding(figures.policy, figures.kernel, figures.target, *item) for item in found]


def _loop_findings(
    figures: Figures, policy: CachePolicy, budget: dict[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    wanted = budget["matrix"].get(figures.kernel, {}).get(figures.target)
    if wanted and policy.dtype.bytes == 2 and figures.matrix not in wanted:
        yield "matrix instructions", figures.matrix or "none", " or ".join(wanted)
    dims = policy.heads.key_dim, policy.heads.value_dim
    aligned = not any(dim * policy.dtype.bytes % 16 for dim in dims)
    if (
        figures.kernel in ("decode", "window")
        and aligned
        and 0 < figures.load_bytes < budget["load_bytes"]
    ):
        yield "load_bytes", figures.load_bytes, f"at least {budget['load_bytes']}"
    allowed = (
        budget["instructions"].get(figures.kernel, {}).get(figures.target, {}).get(str(max(dims)))
    )
    if allowed is None or policy.dtype.bytes != 2 or policy.scores.softcap is not None:
        return
    if figures.instructions > allowed * (1 + budget["instructions_tolerance"]):
        yield "instructions in the main loop", figures.instructions, allowed


def seconds_over_budget(figures: list[Figures], budget: dict[str, Any]) -> list[Finding]:
    """Cold compilation of what one policy needs before its first answer, for one target.

    Verify is decode once more, compiled when it is first used; gradients are no part of inference.
    """
    spent: dict[tuple[str, str], float] = {}
    for one in figures:
        if one.kernel in FIRST_NEEDED:
            key = one.policy, one.target
            spent[key] = spent.get(key, 0.0) + one.seconds
    limits = budget["compile_seconds"]
    return [
        Finding(
            policy, "all kernels", target, "seconds to compile", round(seconds, 1), limits[target]
        )
        for (policy, target), seconds in spent.items()
        if seconds > limits[target]
    ]


# -- predictions


@dataclass(frozen=True, slots=True)
class Prediction:
    """A decode step of one row whose window is full: bytes of keys and values, and their time at the target's bandwidth."""

    policy: str
    target: str
    keys: int
    bytes: int
    microseconds: float


def predict(policy: CachePolicy, target: str, unlimited_keys: int = 32_768) -> Prediction:
    seen = plans.most_seen(policy) if not isinstance(policy.storage, Stateless) else None
    window, chunk, sinks = plans.limits(policy)
    reach = min((n for n in (window, chunk, seen) if n is not None), default=unlimited_keys) + sinks
    heads = policy.heads
    size = reach * heads.kv * (heads.key_dim + heads.value_dim) * policy.dtype.bytes
    bandwidth = TARGETS[target].terabytes_per_second
    return Prediction(policy.name, target, reach, size, round(size / bandwidth / 1e6, 2))


# -- the whole


@dataclass(frozen=True, slots=True)
class Report:
    figures: tuple[Figures, ...]
    predictions: tuple[Prediction, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def audit(
    program: Program,
    targets: tuple[str, ...] = tuple(TARGETS),
    progress: Callable[[Job], None] = lambda job: None,
) -> Report:
    """Compile all kernels of a program for these targets. Minutes of work: `progress` is told each job before it starts."""
    triton = untyped("triton")
    budget = json.loads(BUDGET.read_text(encoding="utf-8"))
    figures: list[Figures] = []
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="kvgen-audit-") as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(Path(folder) / "cache")  # cold, so that seconds mean something
        for job in jobs(program, targets, Path(folder)):
            progress(job)
            one = compile_job(job)
            figures.append(one)
            findings += over_budget(one, program.policy(job.policy), budget)
    findings += seconds_over_budget(figures, budget)
    stored = [policy for policy in program.policies if not isinstance(policy.storage, Stateless)]
    predictions = [predict(policy, target) for policy in stored for target in targets]
    return Report(tuple(figures), tuple(predictions), tuple(findings))


def join(reports: list[Report]) -> Report:
    """One report of several programs."""
    return Report(
        tuple(one for report in reports for one in report.figures),
        tuple(one for report in reports for one in report.predictions),
        tuple(one for report in reports for one in report.findings),
    )


def table(report: Report) -> str:
    """The report for people."""
    head = (
        "policy",
        "kernel",
        "target",
        "regs",
        "spill",
        "stack",
        "shared",
        "load",
        "matrix",
        "loop",
        "seconds",
    )
    rows = [
        (
            *(one.policy, one.kernel, one.target, one.registers, one.spill_bytes, one.stack_bytes),
            *(
                f"{one.shared_bytes >> 10}K",
                one.load_bytes or "",
                one.matrix,
                one.instructions or "",
                one.seconds,
            ),
        )
        for one in report.figures
    ]
    lines = _aligned([head, *rows])
    for one in report.predictions:
        lines.append(
            f"{one.policy} on {one.target}: a decode step reads {one.keys:,} keys, {one.bytes:,} bytes,"
            f" {one.microseconds} us at the target's bandwidth"
        )
    return "\n".join([*lines, *(f"over budget: {finding}" for finding in report.findings)])


def _aligned(rows: list[tuple[Any, ...]]) -> list[str]:
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    ]
