"""Calls on a cache as values: done to the emitted code and to the judge alike, and printed in a script.

A move is a few calls that belong together, as a prepared prefill does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvgen import model
from kvgen.ir import CachePolicy, Ring


@dataclass(frozen=True, slots=True)
class Decode:
    """append_decode"""


@dataclass(frozen=True, slots=True)
class Window:
    """append_window"""

    width: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """prepare_prefill"""

    lengths: tuple[int, ...]
    left: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finalize:
    """finalize_prefill"""


@dataclass(frozen=True, slots=True)
class Trim:
    """trim; one number a row, or one for all"""

    n: int | tuple[int, ...]
    bypass: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """filter_rows"""

    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Extract:
    """extract_row, and on with that"""

    row: int


@dataclass(frozen=True, slots=True)
class Merge:
    """merge_rows with a cache of one row that was appended two tokens, or one where no two fit"""


@dataclass(frozen=True, slots=True)
class Clone:
    """clone, and on with that"""


@dataclass(frozen=True, slots=True)
class Reload:
    """A new cache with the state of this one"""


@dataclass(frozen=True, slots=True)
class Reset:
    """reset"""


Append = Decode | Window
Call = Append | Prepare | Finalize | Trim | Rows | Extract | Merge | Clone | Reload | Reset
Move = tuple[Call, ...]


def act(call: Call, side: Any) -> Any:
    """Do a call that needs nothing but `side`, a cache, a model's caches or a judge. Returns what to go on with."""
    match call:
        case Prepare(lengths, left):
            side.prepare_prefill(list(lengths), list(left) if any(left) else None)
        case Finalize():
            side.finalize_prefill()
        case Trim(n, bypass):
            side.trim(list(n) if isinstance(n, tuple) else n, bypass=bypass)
        case Rows(rows):
            side.filter_rows(list(rows))
        case Reset():
            side.reset()
        case Extract(row):
            return side.extract_row(row)
        case Clone():
            return side.clone()
        case _:
            raise AssertionError(call)
    return side


def smallest_moves(policy: CachePolicy, offsets: tuple[int, ...]) -> tuple[Move, ...]:
    """The alphabet of the exhaustive walk: on both sides of every edge that the policy has."""
    rows, (widths, trims) = len(offsets), _edges(policy)
    moves: list[Move] = [(Decode(),), *((Window(width),) for width in widths)]
    moves += [(Trim(n),) for n in (*trims, offsets)]
    if policy.trim.bypass_tokens:
        moves.append((Trim(policy.trim.bypass_tokens, bypass=True),))
    moves += _prefills(policy, rows)
    if rows > 1:
        moves += [(Rows((rows - 1, 0)),), (Trim(tuple(range(rows))),), (Extract(rows - 1),)]
    return tuple(dict.fromkeys([*moves, (Merge(),), (Reload(),)]))


def _edges(policy: CachePolicy) -> tuple[list[int], list[int]]:
    """(widths of windows, counts of trims)."""
    if not isinstance(policy.storage, Ring):
        return [0, 2, 4], [1, 3]
    ring = model.ring_slots(policy.retention, policy.storage)
    slack = policy.storage.slack_slots
    widths = {1, slack + 1, slack + 2, ring, ring + 1}
    return sorted(widths), sorted({1, slack + 1, slack + 2})


def _prefills(policy: CachePolicy, rows: int) -> Iterator[Move]:
    """Ragged where the policy allows it, in two appends."""
    reach = model.reach(policy.retention) or 2
    if policy.padding.right:
        lengths = tuple(max(0, reach + 1 - 2 * row) for row in range(rows))
        yield Prepare(lengths, (0,) * rows), Window(1), Window(reach), Finalize()
    if policy.padding.left:
        left = tuple(2 * row % 3 + (rows == 1) for row in range(rows))
        lengths = tuple(reach + 2 - pad for pad in left)
        yield Prepare(lengths, left), Window(2), Window(reach), Finalize()
