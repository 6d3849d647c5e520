"""The words for what a command did: to an output folder, a line a package and orphan; to a policy, a line a fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kvgen.diagnostics import Diagnostic, shown
from kvgen.outdir import Change, Comparison, Orphan, Why

SHOWN_NAMES = 4  # files named in a line; the rest is counted
SHOWN_FIXES = 100  # as many as a report shows problems


def comparison(found: Comparison, dry: bool, prune: bool) -> Iterator[str]:
    """`dry`: nothing was written. `prune`: orphans were to be removed."""
    for package in found.packages:
        target = f"{package.source_name} -> {found.folder / package.name}"
        yield f"{target}: {_package(found.changes_of(package), len(package.files), dry)}"
    if len(found.changes) == 1 and found.changes[0].package is None:
        yield f"{found.folder / found.changes[0].path}: {found.changes[0].why.value}"
    for orphan in found.orphans:
        yield f"{found.folder / orphan.path}: {_orphan(orphan, prune and not dry)}"
    if dry and found.changes:
        yield _advice(found.changes)


def fixable(found: Sequence[Diagnostic]) -> Iterator[str]:
    """How many of the problems `kvgen check --fix` would mend."""
    count = sum(one.fix is not None for one in found)
    if count:
        yield f"{count} of {counted(len(found), 'problem')} can be fixed with --fix"


def fixed(name: str, done: Sequence[Diagnostic]) -> Iterator[str]:
    """A line a problem that was fixed, then their number."""
    for one in done[:SHOWN_FIXES]:
        line, column = one.place
        yield f"{name}:{line}:{column}: fixed[{one.code}]: {one.message}; {edits(one)}"
    if len(done) > SHOWN_FIXES:
        yield f"{name}: and {len(done) - SHOWN_FIXES} more"
    if done:
        yield f"{name}: {counted(len(done), 'problem')} fixed"


def edits(
    one: Diagnostic, put_in: str = "put in", left_out: str = "left out", wrote: str = "wrote"
) -> str:
    """What its fix did, or would do."""
    edit = one.edits[0]
    before, after = (shown(text.strip()) for text in (one.source.cut(edit.span), edit.replacement))
    more = f", in {len(one.edits)} places" if len(one.edits) > 1 else ""
    if not after:
        return f"{left_out} `{before}`{more}"
    return f"{wrote} `{after}` for `{before}`{more}" if before else f"{put_in} `{after}`{more}"


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _package(changes: Sequence[Change], files: int, dry: bool) -> str:
    if not changes:
        return "unchanged"
    if all(change.why is Why.NEW for change in changes):
        return f"{counted(len(changes), 'file')} {Why.NEW.value if dry else 'written'}"
    count = f"{len(changes)} of {counted(files, 'file')} {'differ' if dry else 'written'}"
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


def _advice(changes: Sequence[Change]) -> str:
    lost = any(change.why is Why.EDITED for change in changes)
    over = ", over what was edited by hand: save that first" if lost else ""
    return f"compile without --check or --diff to write what differs{over}"


def _orphan(orphan: Orphan, pruned: bool) -> str:
    if orphan.edited:
        return f"orphan of {orphan.source_name}, edited by hand: kept, delete it yourself"
    if pruned:
        return f"orphan of {orphan.source_name}, removed"
    return f"orphan, {orphan.source_name} makes it no more; --prune removes it"
