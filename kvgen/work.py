"""What a command does, as a value: the exit status, and what to say on which stream. Nothing here prints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvgen import outdir, textfile, wording
from kvgen.errors import FileProblem
from kvgen.inputs import Input, Inputs
from kvgen.pause import no_collection

if TYPE_CHECKING:
    from kvgen.diagnostics import Diagnostic
    from kvgen.outdir import Comparison
    from kvgen.pipeline import Checked

CLEAN, PROBLEMS = 0, 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """`out` goes to stdout, `lines` to stderr, `diagnostics` where their format says."""

    status: int = CLEAN
    diagnostics: tuple[Diagnostic, ...] = ()
    out: str = ""
    lines: tuple[str, ...] = ()


# -- check


def check(inputs: Inputs, style: str = "concise") -> Outcome:
    """Says what --fix could do where people read; the other formats are problems alone, a line or record each."""
    inputs.require_some()
    judged = _judged(_check_all(inputs))
    hint = wording.fixable(judged.diagnostics) if style == "full" else ()
    return replace(judged, lines=tuple(hint))


def _check_all(inputs: Inputs) -> tuple[Checked, ...]:
    from kvgen.pipeline import check_bytes

    return tuple(check_bytes(file.data, file.shown, file.table) for file in inputs.files)


def _judged(results: tuple[Checked, ...]) -> Outcome:
    failed = any(result.program is None for result in results)
    diagnostics = tuple(found for result in results for found in result.diagnostics)
    return Outcome(PROBLEMS if failed else CLEAN, diagnostics)


# -- compile


@dataclass(frozen=True, slots=True)
class Compile:
    """The options of `kvgen compile`."""

    output: Path
    check: bool
    diff: bool
    prune: bool
    stage: str | None
    backends: str | None
    tests: bool

    @property
    def dry(self) -> bool:
        return self.check or self.diff

    def require_one_purpose(self) -> None:
        if self.stage is not None and (self.dry or self.prune or self.tests):
            raise FileProblem("--emit only prints: leave out --check, --diff, --prune and --tests")


@no_collection()
def compile(inputs: Inputs, asked: Compile) -> Outcome:
    """All files or none: with a problem in one of them nothing is written."""
    from kvgen import stages

    asked.require_one_purpose()
    backends = stages.chosen_backends(asked.backends)
    results = _check_all(inputs)
    judged = _judged(results)
    sound = [(checked, checked.program) for checked in results if checked.program is not None]
    if judged.status != CLEAN:
        return judged
    if asked.stage is not None:
        texts = (stages.text(asked.stage, *pair, backends) for pair in sound)
        return replace(judged, out="\n".join(texts))
    packages = tuple(
        stages.package(program, backends, asked.tests, checked.tuned) for checked, program in sound
    )
    found = outdir.compare(asked.output, packages, inputs.whole)
    if not found.orphans:
        inputs.require_some()
    return replace(_settled(found, asked), diagnostics=judged.diagnostics)


def _settled(found: Comparison, asked: Compile) -> Outcome:
    """Write and remove what was asked for, and say so."""
    if not asked.dry:
        outdir.write(found)
        if asked.prune:
            outdir.prune(found)
    return Outcome(
        status=PROBLEMS if asked.dry and not found.clean else CLEAN,
        out=outdir.diff(found) if asked.diff else "",
        lines=tuple(wording.comparison(found, asked.dry, asked.prune)),
    )


# -- fmt


def fmt(inputs: Inputs, check: bool, diff: bool) -> Outcome:
    """Each file that can be read is formatted, whatever the others hold."""
    inputs.require_some()
    outcomes = tuple(_fmt(file, check, diff) for file in inputs.files)
    return Outcome(
        status=max(outcome.status for outcome in outcomes),
        diagnostics=tuple(found for outcome in outcomes for found in outcome.diagnostics),
        out="".join(outcome.out for outcome in outcomes),
        lines=tuple(line for outcome in outcomes for line in outcome.lines),
    )


def _fmt(file: Input, check: bool, diff: bool) -> Outcome:
    from kvgen.pipeline import format_bytes

    after, problems = format_bytes(file.data, file.shown)
    if after is None:
        return Outcome(PROBLEMS, problems)
    before = file.data.decode("utf-8")
    dry, changed = check or diff, before != after
    if file.path is None and not dry:
        return Outcome(CLEAN, problems, after)
    if not changed:
        return Outcome(CLEAN, problems)
    if dry:
        out = textfile.unified(file.shown, before, after) if diff else ""
        return Outcome(PROBLEMS, problems, out, (f"{file.shown}: would be reformatted",))
    assert file.path is not None
    textfile.write(file.path, after)
    return Outcome(CLEAN, problems, lines=(f"{file.shown}: reformatted",))


# -- init


def init(name: str | None, config: Path | None, output: Path | None) -> Outcome:
    from kvgen import starter
    from kvgen.hf_fields import ConfigError

    try:
        text = starter.policy(name) if config is None else starter.from_config(config, name)
    except ConfigError as problem:
        return Outcome(PROBLEMS, lines=(f"{config}: {problem}",))
    if output is None:
        return Outcome(out=text)
    starter.write_new(output, text)
    return Outcome(lines=(f"{output}: written; compile it with `kvgen compile {output}`",))


# -- doctor


def doctor(output: Path) -> Outcome:
    from kvgen.doctor import State, examine

    findings = tuple(examine(output))
    out = "".join(f"{found.state.value}  {found.what:<12} {found.text}\n" for found in findings)
    wrong = any(found.state is State.WRONG for found in findings)
    return Outcome(PROBLEMS if wrong else CLEAN, out=out)
