"""How things are said: which stream, in colour or not, and the words for a comparison. `cli` alone uses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TextIO

from kvgen.outdir import Change, Comparison, Package

SHOWN_NAMES = 4  # files named in a line before it counts the rest


def coloured(stream: TextIO) -> bool:
    """Colour on a terminal unless https://no-color.org says no; FORCE_COLOR says yes."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def utf8_streams() -> None:
    """What kvgen prints is UTF-8 whatever the locale, as the files are that it writes."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(encoding="utf-8", errors="backslashreplace")


# -- A comparison, a line a package


def changed_lines(found: Comparison, verb: str) -> Iterable[str]:
    for package in found.packages:
        yield _package_line(found, package, verb)
    if found.changes and not any(found.changes_of(package) for package in found.packages):
        yield f"{found.folder}/{found.changes[0].path}: {found.changes[0].why.value}"


def orphan_lines(found: Comparison, pruned: bool) -> Iterable[str]:
    for orphan in found.orphans:
        path = found.folder / orphan.path
        if orphan.edited:
            yield f"{path}: orphan of {orphan.source_name}, edited by hand, so yours to delete"
        elif pruned:
            yield f"{path}: orphan of {orphan.source_name}, removed"
        else:
            yield f"{path}: orphan, {orphan.source_name} no longer makes it; --prune removes it"


def _package_line(found: Comparison, package: Package, verb: str) -> str:
    target = f"{package.source_name} -> {found.folder / package.name}"
    changes = found.changes_of(package)
    if not changes:
        return f"{target}: unchanged"
    count = f"{len(changes)} of {len(package.files)} files {verb}"
    return f"{target}: {count}: {_reasons(changes)}"


def _reasons(changes: Sequence[Change]) -> str:
    def why(change: Change) -> str:
        return change.why.value

    groups = groupby(sorted(changes, key=why), key=why)
    return "; ".join(f"{reason} ({_names(list(members))})" for reason, members in groups)


def _names(changes: Sequence[Change]) -> str:
    names = [change.path.split("/", 1)[1] for change in changes]
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
