"""The stages of one file as text, for `--emit`, and its package, for the output folder."""

from __future__ import annotations

from kvgen import header
from kvgen.backends import BACKENDS
from kvgen.emit import emit
from kvgen.errors import FileProblem
from kvgen.ir import Program
from kvgen.outdir import Package
from kvgen.pipeline import Checked
from kvgen.plan import describe, plan
from kvgen.show import show
from kvgen.tuned import Table


def package(
    program: Program, backends: tuple[str, ...], tests: bool = False, tuned: Table = ()
) -> Package:
    planned = plan(program, backends, tuned)
    files = {path.partition("/")[2]: text for path, text in emit(planned, tests).items()}
    digest = header.digest(repr(tuned)) if tuned else ""
    return Package(
        program.stem, f"{program.stem}.kv", program.formatted, planned.backends, files, digest
    )


def text(stage: str, checked: Checked, program: Program, backends: tuple[str, ...]) -> str:
    """One stage of one file. The code is all its files, each under a line with its path."""
    match stage:
        case "syntax":
            return show(checked.syntax)
        case "ir":
            return show(program)
        case "plan":
            return describe(plan(program, backends, checked.tuned))
        case _:
            files = emit(plan(program, backends, checked.tuned))
            return "\n".join(f"# ==> {path}\n{files[path]}" for path in sorted(files))


def chosen_backends(names: str | None) -> tuple[str, ...]:
    """`--backend torch,cpu`; all by default."""
    if names is None:
        return tuple(BACKENDS)
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in BACKENDS:
            raise FileProblem(f"no backend `{name}`: --backend takes {', '.join(BACKENDS)}")
    return tuple(name for name in BACKENDS if name in asked)
