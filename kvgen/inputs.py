"""From the PATHs of a command to the files to work on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvgen.errors import FileProblem
from kvgen.pipeline import package_name, table_beside

if TYPE_CHECKING:
    from kvgen.tuned import TableFile

STDIN = "-"
SUFFIX = ".kv"


@dataclass(frozen=True, slots=True)
class Input:
    """One policy file. `path` None: it came from standard input. `shown` is how messages call it.

    `table`: what was measured of its kernels, where that lies beside it.
    """

    path: Path | None
    shown: str
    stem: str
    data: bytes
    table: TableFile | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All of a command. `whole`: a folder was among the PATHs, so these are all the policies there are. `named`: the PATHs."""

    files: tuple[Input, ...]
    whole: bool
    named: tuple[str, ...] = ()

    def require_some(self) -> None:
        if not self.files:
            where = ", ".join(self.named) or "what was named"
            raise FileProblem(
                f"there is no {SUFFIX} file in {where}; `kvgen init -o first{SUFFIX}` writes a first one"
            )


def collect(paths: Iterable[str], stdin_name: str | None) -> Inputs:
    paths = tuple(dict.fromkeys(paths))
    if stdin_name is not None and STDIN not in paths:
        raise FileProblem(f"--name names standard input: add `{STDIN}`, or leave --name out")
    if "" in paths:
        raise FileProblem('"" is no path: name a file, or `.` for the folder you are in')
    try:
        files = _distinct(found for path in paths for found in _expand(path, stdin_name or "stdin"))
        whole = any(Path(path).is_dir() for path in paths if path != STDIN)
    except OSError as error:
        remedy = f"name a {SUFFIX} file, a folder of them, or {STDIN} for standard input"
        raise FileProblem.of(error, remedy) from error
    _refuse_twins(files)
    return Inputs(files, whole, paths)


def read(path: Path) -> Input:
    """One file. Its name, which the output repeats, is checked before anything is read."""
    stem = checked_name(path)
    return Input(path, str(path), stem, path.read_bytes(), table_beside(path))


def checked_name(path: Path) -> str:
    """The stem of a policy file."""
    if path.suffix != SUFFIX:
        raise FileProblem(f"{path} is no policy: a policy file ends in {SUFFIX}")
    return checked_stem(path.stem, str(path))


def checked_stem(stem: str, shown: str) -> str:
    """The name of a package: what `import` accepts, since that is what it is for."""
    try:
        return package_name(stem)
    except ValueError as error:
        raise FileProblem(f"{shown}: {error}") from error


def _expand(path: str, stdin_name: str) -> Iterable[Input]:
    if path == STDIN:
        stem = checked_stem(stdin_name.removesuffix(SUFFIX), "--name")
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  so it is where it was closed
            raise FileProblem("standard input is closed: give it a policy, or name a file")
        return (Input(None, f"{stem}{SUFFIX}", stem, sys.stdin.buffer.read()),)
    if not Path(path).is_dir():
        Path(path).stat()  # what is not there is said before its name is judged
        return (read(Path(path)),)
    inside = sorted(file for file in Path(path).iterdir() if file.suffix == SUFFIX)
    return (read(file) for file in inside if not file.is_dir())


def _distinct(files: Iterable[Input]) -> tuple[Input, ...]:
    """A file named twice counts once."""
    by_place = {file.path.resolve() if file.path else None: file for file in files}
    return tuple(by_place.values())


def _refuse_twins(files: Iterable[Input]) -> None:
    """Names that differ in case only would share a folder on some systems."""
    seen: dict[str, Input] = {}
    for file in files:
        twin = seen.setdefault(file.stem.casefold(), file)
        if twin is not file:
            raise FileProblem(
                f"{twin.shown} and {file.shown} would both be the package `{file.stem}`;"
                " rename one of them"
            )
