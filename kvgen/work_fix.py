"""`kvgen check --fix`."""

from __future__ import annotations

from kvgen import textfile, wording
from kvgen.errors import FileProblem
from kvgen.inputs import Input, Inputs
from kvgen.mend import mend
from kvgen.work import CLEAN, PROBLEMS, Outcome


def fix(inputs: Inputs, style: str) -> Outcome:
    """Each file is fixed as far as it can be, whatever the others hold. What is left is reported."""
    inputs.require_some()
    if style in ("json", "github") and any(file.path is None for file in inputs.files):
        raise FileProblem(
            f"--fix prints the fixed standard input to stdout, where --format {style} prints too;"
            " use --format full or concise, or name a file"
        )
    outcomes = tuple(_fix(file) for file in inputs.files)
    return Outcome(
        status=max(outcome.status for outcome in outcomes),
        diagnostics=tuple(found for outcome in outcomes for found in outcome.diagnostics),
        out="".join(outcome.out for outcome in outcomes),
        lines=tuple(line for outcome in outcomes for line in outcome.lines),
    )


def _fix(file: Input) -> Outcome:
    mended = mend(file.data, file.shown, file.table)
    if file.path is not None and mended.fixed:
        textfile.write(file.path, mended.text)
    return Outcome(
        status=PROBLEMS if mended.left.program is None else CLEAN,
        diagnostics=mended.left.diagnostics,
        out=mended.text if file.path is None else "",
        lines=tuple(wording.fixed(file.shown, mended.fixed)),
    )
