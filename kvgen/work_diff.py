"""What `kvgen diff` does, as a value."""

from __future__ import annotations

import json
from dataclasses import asdict

from kvgen import difference
from kvgen.errors import FileProblem
from kvgen.inputs import Inputs
from kvgen.ir import Program
from kvgen.pipeline import check_bytes
from kvgen.work import CLEAN, PROBLEMS, Outcome, check


def diff(old: Inputs, new: Inputs, style: str) -> Outcome:
    """Status 1 where they differ, or where one of them has errors."""
    if all(file.path is None for file in (*old.files, *new.files)):
        raise FileProblem("standard input can be OLD or NEW, not both: name a file for one of them")
    judged = check(Inputs((*old.files, *new.files), False))
    if judged.status != CLEAN:
        return judged
    sections = difference.difference(_program(old), _program(new))
    out = _json(sections) if style == "json" else difference.text(sections)
    if not sections and style == "text":
        return Outcome(lines=("they mean the same",))
    return Outcome(PROBLEMS if sections else CLEAN, out=out)


def _program(inputs: Inputs) -> Program:
    if len(inputs.files) != 1:
        raise FileProblem("diff compares two policy files: name a file, not a folder of several")
    file = inputs.files[0]
    program = check_bytes(file.data, file.shown).program
    assert program is not None
    return program


def _json(sections: tuple[difference.Section, ...]) -> str:
    return json.dumps([asdict(section) for section in sections], indent=2) + "\n"
