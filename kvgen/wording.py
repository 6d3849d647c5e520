"""The words for a comparison of an output folder: a line a package, a line an orphan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kvgen.outdir import Change, Comparison, Orphan, Why

SHOWN_NAMES = 4  # files named in a line; the rest is counted


def comparison(found: Comparison, dry: bool, prune: bool) -> Iterator[str]:
    """`dry`: nothing was written. `prune`: orphans were to be removed."""
    for package in found.packages:
        target = f"{package.source_name} -> {found.folder / package.name}"
        yield f"{target}: {_package(found.changes_of(package), len(package.files), dry)}"
    if len(found.changes) == 1 and found.changes[0].package is None:
        yield f"{found.folder / found.changes[0].path}: {found.changes[0].why.value}"
    for orphan in found.orphans:
        yield f"{found.folder / orphan.path}: {_orphan(orphan, prune and not dry)}"


def _package(changes: Sequence[Change], files: int, dry: bool) -> str:
    if not changes:
        return "unchanged"
    if all(change.why is Why.NEW for change in changes):
        return f"{len(changes)} files {Why.NEW.value if dry else 'written'}"
    count = f"{len(changes)} of {files} files {'differ' if dry else 'written'}"
    return f"{count}: {_reasons(changes, named=len(changes) < files)}"


def _reasons(changes: Sequence[Change], named: bool) -> str:
    def why(change: Change) -> str:
        return change.why.value

    groups = [(why, list(found)) for why, found in groupby(sorted(changes, key=why), key=why)]
    named = named or len(groups) > 1
    return "; ".join(f"{why} ({_names(found)})" if named else why for why, found in groups)


def _names(changes: Sequence[Change]) -> str:
    names = [change.path.rpartition("/")[2] for change in changes]
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _orphan(orphan: Orphan, pruned: bool) -> str:
    if orphan.edited:
        return f"orphan of {orphan.source_name}, edited by hand: kept, delete it yourself"
    if pruned:
        return f"orphan of {orphan.source_name}, removed"
    return f"orphan, {orphan.source_name} makes it no more; --prune removes it"
