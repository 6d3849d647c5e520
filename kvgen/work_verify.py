"""What `kvgen verify` does, as a value; and its progress on a terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from kvgen.errors import FileProblem
from kvgen.inputs import Inputs
from kvgen.verify import ModelReport, PolicyReport, Report, Tell
from kvgen.verify import verify as verified
from kvgen.verify.report import as_json
from kvgen.verify.report import text as as_text
from kvgen.work import CLEAN, PROBLEMS, Outcome, check

_BAR = 30


@dataclass(frozen=True, slots=True)
class Verify:
    """The options of `kvgen verify`. `style`: `text` or `json`."""

    backends: str | None
    seconds: float
    style: str
    seed: int


def verify(inputs: Inputs, asked: Verify) -> Outcome:
    from kvgen import stages

    judged = check(inputs)
    if judged.status != CLEAN:
        return judged
    backends = None if asked.backends is None else stages.chosen_backends(asked.backends)
    report = _report(inputs, backends, asked)
    text = as_json(report) if asked.style == "json" else as_text(report)
    return Outcome(CLEAN if report.holds else PROBLEMS, judged.diagnostics, text)


def _report(inputs: Inputs, backends: tuple[str, ...] | None, asked: Verify) -> Report:
    try:
        import torch
    except ImportError as error:
        raise FileProblem(f"verify runs the emitted code and needs torch: {error}") from error
    from kvgen.pipeline import check_bytes

    torch.set_num_threads(1)  # many small computations: threads would only wait for each other
    policies: list[PolicyReport] = []
    models: list[ModelReport] = []
    for number, file in enumerate(inputs.files):
        program = check_bytes(file.data, file.shown).program
        assert program is not None
        tell = _progress(number, len(inputs.files))
        found = verified(program, backends, asked.seconds, tell, asked.seed)
        policies += found.policies
        models += found.models
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    return Report(tuple(policies), tuple(models))


def _progress(number: int, files: int) -> Tell | None:
    """A bar that is drawn over itself; nothing where standard error is no terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(what: str, done: float) -> None:
        share = (number + done) / files
        full = int(share * _BAR)
        sys.stderr.write(f"\r\x1b[K[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%}  {what}")
        sys.stderr.flush()

    return tell
