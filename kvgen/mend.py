"""Applies the fixes that diagnostics carry, save those that only uncover other errors: they guessed wrong."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvgen.diagnostics import Diagnostic, Edit
from kvgen.pause import no_collection
from kvgen.pipeline import Checked, check_bytes, check_text, with_table
from kvgen.source import SourceFile, Span

if TYPE_CHECKING:
    from kvgen.tuned import TableFile

_BOM = "\ufeff"
_TRIALS = 8  # each reads the whole file again


@dataclass(frozen=True, slots=True)
class Mended:
    """`text` "" where the file is not text. `fixed` have the places where they were found; `left` is still to be said."""

    text: str
    fixed: tuple[Diagnostic, ...]
    left: Checked


@no_collection()
def mend(data: bytes, file_name: str, table: TableFile | None = None) -> Mended:
    """All fixes that do not overlap, and then those that only now come to light. Done twice it does no more. `table`: as
    for `check_bytes`, of what is left.
    """
    checked = check_bytes(data, file_name)
    fixed: list[Diagnostic] = []
    while True:
        kept, checked = _apply(apart(checked.diagnostics), checked)
        if not kept:
            return Mended(_text(data, checked), tuple(fixed), with_table(checked, table))
        fixed += kept


def _text(data: bytes, checked: Checked) -> str:
    if any(one.code == "KV100" for one in checked.diagnostics):
        return ""
    bom = _BOM if data.startswith(_BOM.encode()) else ""
    return bom + checked.source.text


def _apply(chosen: list[Diagnostic], before: Checked) -> tuple[list[Diagnostic], Checked]:
    """The fixes that were kept, and the file with them. None where those that help were not found in a few trials."""
    for _ in range(_TRIALS):
        if not chosen:
            break
        edits = sorted(edit for one in chosen for edit in one.edits)
        after = check_text(edited(before.source, edits), before.source.name)
        blamed = _blamed(chosen, before, after, edits)
        if not blamed:
            fewer = len(after.diagnostics) < len(before.diagnostics)
            return (chosen, after) if fewer else ([], before)
        chosen = [one for i, one in enumerate(chosen) if i not in blamed]
    return [], before


def edited(source: SourceFile, edits: Iterable[Edit]) -> str:
    """The text with edits that do not overlap; a line end put in is as the file's own are."""
    ends = "\r\n" if "\r\n" in source.text else "\n"
    parts: list[str] = []
    at = 0
    for (start, end), replacement in sorted(edits):
        parts += (source.text[at:start], replacement.replace("\n", ends))
        at = end
    return "".join((*parts, source.text[at:]))


# -- Which fixes may go together


def apart(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Those with a fix, as many as can be made together: of two that touch the same characters the first."""
    taken: list[Span] = []
    chosen: list[Diagnostic] = []
    for one in found:
        spans = [edit.span for edit in one.edits]
        if spans and all(_is_free(span, taken) for span in spans):
            chosen.append(one)
            for span in spans:
                insort(taken, span)
    return chosen


def _is_free(span: Span, taken: Sequence[Span]) -> bool:
    """Whether a place is apart from those taken, which are in order. An insertion wants both its sides for itself."""
    at = bisect_left(taken, span)
    return not any(_touch(span, other) for other in taken[max(0, at - 1) : at + 1])


def _touch(one: Span, other: Span) -> bool:
    if one.start == one.end or other.start == other.end:
        return one.start <= other.end and other.start <= one.end
    return one.start < other.end and other.start < one.end


# -- Which fix is to blame for an error that was not there before


def _blamed(
    chosen: Sequence[Diagnostic], before: Checked, after: Checked, edits: Sequence[Edit]
) -> set[int]:
    """For each new error the last fix before it, by its index."""
    fixed = {id(one) for one in chosen}
    known = {
        (one.code, one.primary.span.start) for one in before.diagnostics if id(one) not in fixed
    }
    back = _Back(before.source, edits)
    starts = sorted((one.edits[0].span.start, i) for i, one in enumerate(chosen))
    blamed: set[int] = set()
    for one in after.diagnostics:
        at = back.place(one.primary.span.start)
        if one.is_error and (one.code, at) not in known:
            blamed.add(starts[max(0, bisect_right(starts, (at, len(chosen))) - 1)][1])
    return blamed


class _Back:
    """From places in the edited text to those in the text before."""

    def __init__(self, source: SourceFile, edits: Sequence[Edit]) -> None:
        ends = 2 if "\r\n" in source.text else 1
        self._starts, self._ends, self._shifts = [0], [0], [0]
        for (start, end), replacement in edits:
            length = len(replacement) + (ends - 1) * replacement.count("\n")
            new_start = start + self._shifts[-1]
            self._starts.append(new_start)
            self._ends.append(new_start + length)
            self._shifts.append(self._shifts[-1] + length - (end - start))

    def place(self, at: int) -> int:
        i = bisect_right(self._starts, at) - 1
        if i and at < self._ends[i]:
            return self._starts[i] - self._shifts[i - 1]
        return at - self._shifts[i]
