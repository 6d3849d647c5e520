"""What `kvgen build --target` does, as a value: Triton kernels compiled ahead of time, beside the packages they belong to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kvgen import header, work_audit
from kvgen.errors import FileProblem
from kvgen.inputs import Inputs
from kvgen.ir import Program
from kvgen.naming import modules
from kvgen.work import CLEAN, Outcome, check

OUTPUT = Path("generated")


@dataclass(frozen=True, slots=True)
class Ahead:
    """The options of `kvgen build --target`. `output`: the folder with the packages, as `kvgen compile` wrote them."""

    targets: str
    output: Path | None
    columns: str | None


def build(inputs: Inputs, asked: Ahead) -> Outcome:
    """All packages are looked at before the first kernel is compiled."""
    targets, columns = work_audit.chosen_targets(asked.targets), _columns(asked.columns)
    work_audit.require_compiler("kvgen build --target")
    judged = check(inputs)
    if judged.status != CLEAN:
        return judged
    from kvgen import ahead
    from kvgen.pipeline import check_bytes

    packages: list[tuple[Path, Program]] = []
    for file in inputs.files:
        program = check_bytes(file.data, file.shown).program
        assert program is not None
        packages.append((_package(asked.output or OUTPUT, program), program))
    shelves = [
        ahead.build(home, program, target, columns, work_audit.tell)
        for home, program in packages
        for target in targets
    ]
    lines = (f"{s.folder}: {s.kernels} kernels, {s.bytes >> 10} KB" for s in shelves)
    return replace(judged, lines=tuple(lines))


def _package(output: Path, program: Program) -> Path:
    """Where the package of a policy file is. It has to be what the file compiles to: its code is what is built."""
    home = output / program.stem
    advice = f"`kvgen compile {program.stem}.kv -o {output}` writes it, then build again"
    for policy in program.policies:
        file = home / f"{modules(policy.name)['triton']}.py"
        if not file.is_file():
            raise FileProblem(f"{file} is not there, and its kernels are to be built: {advice}")
        written = header.read(file.read_text(encoding="utf-8"))
        if written is None or written.source != header.digest(program.formatted):
            raise FileProblem(f"{file} was written from another {program.stem}.kv: {advice}")
    return home


def _columns(named: str | None) -> tuple[int, ...]:
    from kvgen.jobs import STEP_COLUMNS

    words = [] if named is None else [word.strip() for word in named.split(",")]
    if wrong := [
        word for word in words if not word.isdecimal() or not 1 <= int(word) <= STEP_COLUMNS
    ]:
        raise FileProblem(
            f"--columns {', '.join(wrong)}: verify windows have 1 to {STEP_COLUMNS} columns, wider ones"
            " need no kernels of their own"
        )
    return tuple(map(int, words))
