"""Tile sizes and splits of a policy's Triton kernels, by target and bytes an element, from the tables of triton_tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvgen import model
from kvgen.backends.triton_tables import (
    DECODE_TILES,
    F32_DECODE_TILES,
    F32_GRADIENT_TILES,
    F32_WINDOW_TILES,
    KEY_GRADIENT_TILES,
    QUERY_GRADIENT_TILES,
    WINDOW_TILES,
)
from kvgen.backends.triton_targets import INTERPRETER, TARGETS, Target
from kvgen.ir import CachePolicy, Fixed, Ring

FARTHEST = 1 << 30  # kernels count positions in 32 bits: a longer window sees everything


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Query rows and keys a step, warps, loads in flight.

    `splits` programs share the keys, `split` of them each, or at least as many where storage has no limit.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    splits: int
    split: int

    def __str__(self) -> str:
        return (
            f"DecodePlan(rows={self.rows}, keys={self.keys}, warps={self.warps},"
            f" stages={self.stages}, splits={self.splits}, split={self.split})"
        )


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Query rows and keys a step, warps, loads in flight in the clean loop and in the masked one."""

    rows: int
    keys: int
    warps: int
    stages: int
    edge_stages: int

    def __str__(self) -> str:
        return (
            f"TilePlan(rows={self.rows}, keys={self.keys}, warps={self.warps},"
            f" stages={self.stages}, edge_stages={self.edge_stages})"
        )


Measured = Mapping[tuple[str, str], tuple[int, ...]]  # choices, by kernel and target
NOTHING: Measured = {}

# Of so many tiles the masked ones are few, and loading ahead in their loop pays less than it costs the compiler: on sm_100,
# 3 s of 8 a kernel.
LONG_TILES = 12

# Of fewer clean tiles a window step has no loop of their own: a third of its tiles, which save less by having no mask than
# half as many loops save the compiler (gfx942, dim 64, window 256 and sinks: 4 s of 9).
FEW_CLEAN = 3

LEAST_SPLIT_KEYS = 128  # a shorter split spends more on its start and its part than on keys
MOST_SPLITS = 64  # what `merge` joins at once


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of the emitted table."""

    key: str
    decode: DecodePlan
    window: TilePlan


@dataclass(frozen=True, slots=True)
class BackwardRow:
    """One line of the table of a stateless policy: its three tiled kernels."""

    key: str
    window: TilePlan
    key_gradients: TilePlan
    query_gradients: TilePlan


def limits(policy: CachePolicy) -> tuple[int | None, int | None, int]:
    """Window, chunk and sinks as kernels use them: without the limits that no row can reach."""
    retention = policy.retention
    window, chunk = (
        None if tokens is None or tokens >= FARTHEST else tokens
        for tokens in (retention.window_tokens, retention.chunk_tokens)
    )
    return window, chunk, 0 if window is None else min(retention.sink_tokens, FARTHEST)


def block(dim: int) -> int:
    """Tiles are powers of two, and a matrix instruction wants 16."""
    return max(16, 1 << (dim - 1).bit_length())


Choice = tuple[
    int, ...
]  # rows, keys, warps, stages, and splits of a decode step or edge stages of others


def plan_rows(policy: CachePolicy, measured: Measured = NOTHING) -> tuple[PlanRow, ...]:
    """`measured`: choices by kernel and target that take the place of planned ones, for the policy's dtype."""
    return tuple(
        PlanRow(
            f'("{target.name}", {size})',
            decode_plan(policy, target, size, chosen(policy, target, size, "decode", measured)),
            window_plan(policy, target, size, chosen(policy, target, size, "window", measured)),
        )
        for target in (*TARGETS, INTERPRETER)
        for size in (2, 4)
    )


def chosen(
    policy: CachePolicy, target: Target, size: int, kernel: str, measured: Measured
) -> Choice | None:
    return measured.get((kernel, target.name)) if size == policy.dtype.bytes else None


def decode_plan(
    policy: CachePolicy, target: Target, size: int, choice: Choice | None = None
) -> DecodePlan:
    rows, keys, warps, stages, splits = choice or planned_decode(policy, target, size)
    most = most_seen(policy)
    if most is None:
        least = least_split(policy, target, keys)
        return DecodePlan(rows, keys, warps, stages, splits, least)
    split = up(-(-most // splits), keys)
    return DecodePlan(rows, keys, warps, stages, -(-most // split), split)


def planned_decode(policy: CachePolicy, target: Target, size: int) -> Choice:
    """Splits: one wave at batch 1, two programs a multiprocessor; a split is long enough to pay for its part."""
    wide = size == 4 and target is not INTERPRETER
    tiles = F32_DECODE_TILES if wide else DECODE_TILES[target.name]
    rows, keys, warps, stages = fitted(tiles, policy)
    wanted = min(MOST_SPLITS, -(-2 * target.multiprocessors // policy.heads.kv))
    most = most_seen(policy)
    if most is not None:
        wanted = max(1, min(wanted, most // least_split(policy, target, keys)))
    return rows, keys, warps, stages, wanted


def least_split(policy: CachePolicy, target: Target, keys: int) -> int:
    """Keys that a split reads at least. Its part costs 8 bytes a query head and dim, written and read: a sixteenth of
    what it reads at 32 keys a head of the group.
    """
    if target is INTERPRETER:
        return 2 * keys
    return up(max(LEAST_SPLIT_KEYS, 32 * policy.heads.group), keys)


def most_seen(policy: CachePolicy) -> int | None:
    """The slots that splits share: a ring's, or as many as a query can see of linear storage; None: no limit."""
    storage = policy.storage
    if isinstance(storage, Ring):
        return model.ring_slots(policy.retention, storage)
    known = [
        n
        for n in (*limits(policy)[:2], storage.slots if isinstance(storage, Fixed) else None)
        if n is not None
    ]
    return min(known) if known else None


def backward_rows(policy: CachePolicy, measured: Measured = NOTHING) -> tuple[BackwardRow, ...]:
    tables = {
        "window": WINDOW_TILES,
        "key_gradients": KEY_GRADIENT_TILES,
        "query_gradients": QUERY_GRADIENT_TILES,
    }
    return tuple(
        BackwardRow(
            f'("{target.name}", {size})',
            *(
                tile_plan(
                    table, policy, target, size, chosen(policy, target, size, kernel, measured)
                )
                for kernel, table in tables.items()
            ),
        )
        for target in (*TARGETS, INTERPRETER)
        for size in (2, 4)
    )


def reach(policy: CachePolicy) -> int:
    """Positions that a query sees at most, sinks aside."""
    return min((n for n in limits(policy)[:2] if n is not None), default=FARTHEST)


def all_edge(policy: CachePolicy) -> bool:
    """Whether a window or chunk is so short that, with some target's tiles, hardly a tile of keys is seen by a whole tile
    of columns.
    """
    plans = (
        window_plan(policy, target, size) for target in (*TARGETS, INTERPRETER) for size in (2, 4)
    )
    return any(reach(policy) < plan.rows + FEW_CLEAN * plan.keys - 1 for plan in plans)


def window_plan(
    policy: CachePolicy, target: Target, size: int, choice: Choice | None = None
) -> TilePlan:
    return tile_plan(WINDOW_TILES, policy, target, size, choice)


def tile_plan(
    table: dict[str, dict[int, tuple[int, ...]]],
    policy: CachePolicy,
    target: Target,
    size: int,
    choice: Choice | None = None,
) -> TilePlan:
    if choice is not None:
        return TilePlan(*choice)
    if size == 4 and target is not INTERPRETER:
        wide = F32_WINDOW_TILES if table is WINDOW_TILES else F32_GRADIENT_TILES
        return TilePlan(*fitted(wide, policy))
    rows, keys, warps, stages, edge_stages = fitted(table[target.name], policy)
    if table is WINDOW_TILES and target.name == "gfx942" and reach(policy) < LONG_TILES * keys:
        keys = min(keys, 32)  # half the code to mask, in half the time to compile
    if table is WINDOW_TILES and target.name == "sm_100":
        if limits(policy)[2] and isinstance(policy.storage, Ring):
            keys = min(keys, 64)  # sinks in two sources leave no registers for more
        if reach(policy) >= LONG_TILES * keys:
            edge_stages = 1
    return TilePlan(rows, keys, warps, stages, edge_stages)


def fitted(tiles: dict[int, tuple[int, ...]], policy: CachePolicy) -> tuple[int, ...]:
    """The row of a table for a policy's larger dim; beyond the table rows and keys shrink as dims grow."""
    dim = max(block(policy.heads.key_dim), block(policy.heads.value_dim))
    for largest, tile in tiles.items():
        if dim <= largest:
            return tile
    rows, keys, *rest = tiles[256]
    return (max(16, rows * 256 // dim), max(16, keys * 256 // dim), *rest)


def up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
