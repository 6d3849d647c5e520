"""The story on one screen: read, parse, check, plan, emit. Returns values, prints nothing."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from kvgen.diagnostics import Diagnostic, Label, Problems
from kvgen.ir import Program
from kvgen.pause import no_collection
from kvgen.source import SourceFile, Span
from kvgen.syntax import File

if TYPE_CHECKING:
    from kvgen.tuned import Table, TableFile


@dataclass(frozen=True, slots=True)
class Checked:
    """One file: its syntax as far as it could be read; its program, None when a diagnostic is an error.

    `tuned`: what was measured of the program, from the table beside the file.
    """

    source: SourceFile
    syntax: File
    program: Program | None
    diagnostics: tuple[Diagnostic, ...]
    tuned: Table = ()


def check_text(text: str, file_name: str) -> Checked:
    """Text to IR. All problems are reported, in the order of their places; warnings leave the program."""
    from kvgen.fmt import Formatted, format_file
    from kvgen.parse import parse
    from kvgen.semantics import analyse

    with no_collection():
        source = SourceFile.of(text, file_name)
        syntax, unread = parse(source)
        formatted = Formatted("", {}) if unread else format_file(source, syntax)
        program, problems = analyse(source, syntax, formatted)
        found = tuple(sorted(unread + problems, key=lambda one: (one.primary.span, one.code)))
    broken = any(one.is_error for one in found)
    return Checked(source, syntax, None if broken else program, found)


def check_bytes(data: bytes, file_name: str, table: TableFile | None = None) -> Checked:
    """The same for a file as it lies on disk: bytes that are not UTF-8 are a diagnostic too, and a table of what was
    measured may lie beside it.
    """
    try:
        checked = check_text(data.decode("utf-8"), file_name)
    except UnicodeDecodeError as error:
        return _not_utf8(data, file_name, error.start)
    return with_table(checked, table)


def with_table(checked: Checked, table: TableFile | None) -> Checked:
    """What was measured of the program, and a warning for what of the table is not used."""
    if table is None or checked.program is None:
        return checked
    from kvgen import tuned

    found, unused = tuned.read(table, checked.program)
    return replace(checked, tuned=found, diagnostics=checked.diagnostics + unused)


def format_bytes(data: bytes, file_name: str) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """The file in the one style; None, and why, where it cannot be read."""
    from kvgen.fmt import format_text

    try:
        return format_text(data.decode("utf-8"), file_name)
    except UnicodeDecodeError as error:
        return None, _not_utf8(data, file_name, error.start).diagnostics


# -- to files


@dataclass(frozen=True, slots=True)
class Compiled:
    """`files` by their path in an output folder; empty where a diagnostic is an error."""

    files: Mapping[str, str] = field(hash=False)
    diagnostics: tuple[Diagnostic, ...]


def compile_text(text: str, name: str) -> Compiled:
    """Policies to the files of the package `name`. Nothing is written."""
    return compile_checked(check_text(text, f"{package_name(name)}.kv"))


def compile_file(path: str | PathLike[str]) -> Compiled:
    """A policy file to the files of the package of its stem. Nothing is written."""
    path = Path(path)
    package_name(path.stem)
    return compile_checked(check_bytes(path.read_bytes(), str(path), table_beside(path)))


def compile_checked(checked: Checked) -> Compiled:
    from kvgen.emit import emit
    from kvgen.plan import plan

    if checked.program is None:
        return Compiled({}, checked.diagnostics)
    return Compiled(emit(plan(checked.program, tuned=checked.tuned)), checked.diagnostics)


def table_beside(path: Path) -> TableFile | None:
    """What `kvgen tune` wrote beside a policy file."""
    from kvgen.tuned import SUFFIX, TableFile

    beside = path.with_name(f"{path.stem}{SUFFIX}")
    return TableFile(str(beside), beside.read_bytes()) if beside.is_file() else None


def package_name(stem: str) -> str:
    """The stem, if `import` accepts it. It becomes part of file names and comments, and nothing else may."""
    stem = stem.removesuffix(".kv")
    if not stem.isidentifier() or keyword.iskeyword(stem):
        raise ValueError(
            f"`{stem}` cannot name a Python package;"
            " use letters, digits and underscores, no digit first, and no Python keyword"
        )
    return stem


# -- bytes


def _not_utf8(data: bytes, file_name: str, at: int) -> Checked:
    source = SourceFile.of(data.decode("utf-8", "replace"), file_name)
    start = len(data[:at].decode("utf-8").removeprefix("\ufeff"))
    problems = Problems(source)
    problems.add(
        "KV100",
        "the file is not UTF-8",
        Label(Span(start, start + 1), f"byte 0x{data[at]:02x} is not valid here"),
        "save the file as UTF-8",
    )
    empty = File(None, Span(0, 0), (), ())
    return Checked(source, empty, None, tuple(problems.found))
