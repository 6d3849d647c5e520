"""What `kvgen tune` does, as a value: measure on a device, write the table beside the policy file."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvgen import textfile
from kvgen.errors import FileProblem
from kvgen.inputs import Input, Inputs
from kvgen.work import CLEAN, PROBLEMS, Outcome, check

if TYPE_CHECKING:
    from kvgen.ir import CachePolicy, Program
    from kvgen.tune import Trial
    from kvgen.tuned import Entry


@dataclass(frozen=True, slots=True)
class Tune:
    """The options of `kvgen tune`. `only`: one policy of a file; `rows`: of the batch that is measured."""

    device: str
    only: str | None
    rows: int


def tune(inputs: Inputs, asked: Tune) -> Outcome:
    """One file after the other; what is written for one stays when a later one fails."""
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            raise FileProblem(
                f"kvgen tune runs Triton kernels and {name} is not installed: pip install 'kvgen[torch]'"
            )
    judged = check(inputs)
    if judged.status != CLEAN:
        return judged
    from kvgen.tune import UnmeasurableError

    lines: list[str] = []
    for file in inputs.files:
        try:
            lines += _tune_file(file, asked)
        except UnmeasurableError as error:
            return Outcome(PROBLEMS, judged.diagnostics, lines=(*lines, f"{file.shown}: {error}"))
    return Outcome(CLEAN, judged.diagnostics, lines=tuple(lines))


def _tune_file(file: Input, asked: Tune) -> list[str]:
    if file.path is None:
        raise FileProblem(
            "kvgen tune writes a table beside the policy file: name one instead of `-`"
        )
    from kvgen import tune_device, tuned
    from kvgen.pipeline import check_bytes
    from kvgen.tune import tune as measure

    checked = check_bytes(file.data, file.shown, file.table)
    assert checked.program is not None
    policies = _chosen(checked.program, file.shown, asked.only)
    device = tune_device.open_device(asked.device, checked.program, asked.rows)
    found = [entry for policy in policies for entry in measure(policy, device, tell)]
    new = {(entry.policy, entry.target) for entry in found}
    kept = (entry for entry in checked.tuned if (entry.policy, entry.target) not in new)
    table = file.path.with_name(f"{file.stem}{tuned.SUFFIX}")
    textfile.write(table, tuned.dump((*found, *kept), checked.program))
    told = [_line(entry, checked.program) for entry in found]
    return [*told, f"{table}: written; `kvgen compile {file.shown}` takes it"]


def _chosen(program: Program, shown: str, only: str | None) -> tuple[CachePolicy, ...]:
    chosen = tuple(policy for policy in program.policies if only in (None, policy.name))
    if not chosen:
        names = ", ".join(policy.name for policy in program.policies) or "none"
        raise FileProblem(f"{shown} has no policy {only}: there is {names}")
    return chosen


def _line(entry: Entry, program: Program) -> str:
    from kvgen.backends import triton_choices as choices

    planned = choices.planned(program.policy(entry.policy), entry.target, entry.kernel)
    numbers = zip(choices.NUMBERS[entry.kernel], entry.choice, planned, strict=True)
    moved = ", ".join(f"{name} {new} for {old}" for name, new, old in numbers if new != old)
    times = f"{entry.microseconds:g} us, planned {entry.planned_microseconds:g} us"
    what = f"{entry.policy} {entry.kernel} on {entry.device}"
    return f"{what}: {moved or 'as planned'}: {times}"


def tell(trial: Trial) -> None:
    """Where a long measurement is, for whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(trial, file=sys.stderr)
