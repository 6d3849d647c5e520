"""What `kvgen audit` does, as a value."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvgen.errors import FileProblem
from kvgen.inputs import Inputs
from kvgen.work import CLEAN, PROBLEMS, Outcome, check

if TYPE_CHECKING:
    from kvgen.audit import Report
    from kvgen.jobs import Job


@dataclass(frozen=True, slots=True)
class Audit:
    """The options of `kvgen audit`."""

    targets: str | None
    style: str


def audit(inputs: Inputs, asked: Audit) -> Outcome:
    """Compile the kernels of every file for every target; problems are figures over budget."""
    targets = chosen_targets(asked.targets)
    require_compiler("kvgen audit")
    judged = check(inputs)
    if judged.status != CLEAN:
        return judged
    from kvgen import audit as auditing
    from kvgen.pipeline import check_bytes

    reports: list[Report] = []
    for file in inputs.files:
        program = check_bytes(file.data, file.shown).program
        assert program is not None
        reports.append(auditing.audit(program, targets, tell))
    report = auditing.join(reports)
    out = report.to_json() if asked.style == "json" else auditing.table(report)
    return Outcome(PROBLEMS if report.findings else CLEAN, judged.diagnostics, out + "\n")


def chosen_targets(named: str | None) -> tuple[str, ...]:
    from kvgen.audit import TARGETS

    if named is None:
        return tuple(TARGETS)
    chosen = tuple(name.strip() for name in named.split(","))
    if unknown := [name for name in chosen if name not in TARGETS]:
        raise FileProblem(f"no target {', '.join(unknown)}: there are {', '.join(TARGETS)}")
    return chosen


def require_compiler(command: str) -> None:
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            raise FileProblem(
                f"{command} compiles Triton kernels and {name} is not installed:"
                " pip install 'kvgen[torch]'"
            )
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise FileProblem(f"{command} compiles, it does not interpret: unset TRITON_INTERPRET")


def tell(job: Job) -> None:
    """Where a long audit is, for whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(f"compiling {job.title}", file=sys.stderr)
