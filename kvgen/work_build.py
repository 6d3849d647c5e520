"""What `kvgen build` does, as a value: kernels of policies, compiled ahead of their first use."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from kvgen.errors import FileProblem
from kvgen.inputs import Inputs
from kvgen.ir import Program
from kvgen.work import CLEAN, Outcome, check


@dataclass(frozen=True, slots=True)
class Build:
    """The options of `kvgen build`. `output` None: the folder where emitted packages look."""

    output: Path | None


def chosen(inputs: Inputs, asked: Build, targets: str | None, columns: str | None) -> Outcome:
    """Triton kernels for targets, or the C++ kernels for this machine."""
    from kvgen import work_ahead

    if targets is not None:
        return work_ahead.build(inputs, work_ahead.Ahead(targets, asked.output, columns))
    if columns is not None:
        raise FileProblem("--columns is of Triton kernels: add --target, or leave --columns out")
    return build(inputs, asked)


def build(inputs: Inputs, asked: Build) -> Outcome:
    """All files or none: with a problem in one of them nothing is compiled."""
    judged = check(inputs)
    if judged.status != CLEAN:
        return judged
    from kvgen.pipeline import check_bytes

    built: list[str] = []
    if asked.output is not None:
        _require_writable(asked.output)
    with _cache_folder(asked.output), tempfile.TemporaryDirectory(prefix="kvgen-") as folder:
        for file in inputs.files:
            program = check_bytes(file.data, file.shown).program
            assert program is not None
            built += _libraries(program, Path(folder))
    return replace(judged, lines=tuple(built))


def _libraries(program: Program, folder: Path) -> Iterator[str]:
    """A line for each policy: where its library is, built now if it was not."""
    from kvgen.backends.cpu import ELEMENTS
    from kvgen.emit import emit
    from kvgen.naming import modules
    from kvgen.plan import plan

    for name, text in emit(plan(program, ("cpu",))).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    for policy in program.policies:
        source = folder / program.stem / f"{modules(policy.name)['cpu']}.cpp"
        if not source.exists():
            yield f"{policy.name}: nothing to build, a stateless policy attends with torch's operations"
            continue
        builder = _module(source.parent / "_build.py")
        try:
            library = builder.library_path(source, (f"KV_ELEMENT={ELEMENTS[policy.dtype]}",))
        except ImportError as error:
            raise FileProblem(str(error)) from error
        yield f"{policy.name}: {library}"


def _module(path: Path) -> ModuleType:
    """The builder that is emitted, without the package around it: that would import torch."""
    spec = importlib.util.spec_from_file_location("kvgen_emitted_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _require_writable(folder: Path) -> None:
    """Emitted packages take a temporary folder where theirs cannot be written; one that was named is meant."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileProblem.of(error, "name another folder with --out", place=folder) from error


@contextlib.contextmanager
def _cache_folder(output: Path | None) -> Generator[None]:
    before = os.environ.get("KVGEN_CACHE")
    if output is not None:
        os.environ["KVGEN_CACHE"] = str(output.absolute())
    try:
        yield
    finally:
        if output is not None:
            os.environ.pop("KVGEN_CACHE")
            if before is not None:
                os.environ["KVGEN_CACHE"] = before
