"""Compile every emitted Triton kernel for every target, on a machine without a GPU, and hold the result against a budget.

Needs triton (its wheel brings ptxas, cuobjdump and LLVM for AMD), never a driver. What a figure means stands at `Figures`;
the budget is audit_budget.json beside this file.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvgen import jobs, machine_code
from kvgen.backends import triton_tiles as plans
from kvgen.emit import emit
from kvgen.ir import CachePolicy, Program, Stateless
from kvgen.jobs import Job
from kvgen.plan import plan

BUDGET = Path(__file__).with_name("audit_budget.json")
TARGETS = {target.name: target for target in plans.TARGETS}
FIRST_NEEDED = {"append_step", "append_columns", "decode", "merge", "window"}


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


def jobs_of(program: Program, targets: tuple[str, ...], folder: Path) -> Iterator[Job]:
    """Every kernel of a program for these targets; its package is written to `folder`, and imported from there."""
    for path, text in emit(plan(program, ("triton",))).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    package = jobs.import_package(folder / program.stem)
    for policy in program.policies:
        kernels = jobs.kernels_of(package, policy)
        for target in targets:
            for launch in jobs.one_of_each(policy, kernels, target):
                yield jobs.job(policy, target, launch)


def compile_job(asked: Job) -> Figures:
    """Compile, and read the result."""
    begin = _processor_seconds()
    compiled = jobs.compile_job(asked)
    seconds = _processor_seconds() - begin
    read = machine_code.read_gcn if asked.target.startswith("gfx") else machine_code.read_sass
    return Figures(
        policy=asked.policy,
        kernel=asked.kernel,
        target=asked.target,
        shared_bytes=compiled.metadata.shared,
        shared_limit=TARGETS[asked.target].shared_bytes,
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
    if figures.kernel == "window" and plans.all_edge(policy):
        return  # with some tiles it has no clean loop
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
    triton = jobs.untyped("triton")
    budget = json.loads(BUDGET.read_text(encoding="utf-8"))
    figures: list[Figures] = []
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="kvgen-audit-") as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(Path(folder) / "cache")  # cold, so that seconds mean something
        for job in jobs_of(program, targets, Path(folder)):
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
