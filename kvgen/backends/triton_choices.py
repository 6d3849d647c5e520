"""What of a policy's Triton kernels can be chosen by measuring: the numbers of each, and what may be tried."""

from __future__ import annotations

from collections.abc import Iterator

from kvgen.backends import triton_tables as tables
from kvgen.backends import triton_tiles as tiles
from kvgen.ir import CachePolicy, Stateless

TARGETS = {target.name: target for target in (*tiles.TARGETS, tiles.INTERPRETER)}

_TILE = ("rows", "keys", "warps", "stages", "edge_stages")
NUMBERS = {
    "decode": ("rows", "keys", "warps", "stages", "splits"),
    "window": _TILE,
    "key_gradients": _TILE,
    "query_gradients": _TILE,
}
TABLES = {
    "window": tables.WINDOW_TILES,
    "key_gradients": tables.KEY_GRADIENT_TILES,
    "query_gradients": tables.QUERY_GRADIENT_TILES,
}
MOST = {
    "rows": 128,
    "keys": 256,
    "warps": 16,
    "stages": 8,
    "splits": tiles.MOST_SPLITS,
    "edge_stages": 8,
}

Choice = tuple[int, ...]


def kernels(policy: CachePolicy) -> tuple[str, ...]:
    """The kernels of a policy that have something to choose."""
    if isinstance(policy.storage, Stateless):
        return "window", "key_gradients", "query_gradients"
    return "decode", "window"


def planned(policy: CachePolicy, target: str, kernel: str) -> Choice:
    """What is chosen without measuring."""
    size = policy.dtype.bytes
    if kernel == "decode":
        return tiles.planned_decode(policy, TARGETS[target], size)
    plan = tiles.tile_plan(TABLES[kernel], policy, TARGETS[target], size)
    return plan.rows, plan.keys, plan.warps, plan.stages, plan.edge_stages


def neighbours(
    policy: CachePolicy, target: str, kernel: str, choice: Choice
) -> Iterator[tuple[str, Choice]]:
    """Choices that differ in one number, that number first; always in the same order."""
    for i, name in enumerate(NUMBERS[kernel]):
        for value in _values(name, choice[i]):
            tried = (*choice[:i], value, *choice[i + 1 :])
            if not objection(policy, target, kernel, tried) and _differs(
                policy, target, kernel, tried, choice
            ):
                yield name, tried


def _values(name: str, value: int) -> tuple[int, ...]:
    if name in ("stages", "edge_stages"):
        return tuple(n for n in (value - 1, value + 1) if n >= 1)
    return tuple(n for n in (value // 2, value * 2) if n >= 1)


def _differs(policy: CachePolicy, target: str, kernel: str, one: Choice, other: Choice) -> bool:
    """Splits are rounded, so two numbers of them may be the same kernel."""
    if kernel != "decode":
        return one != other
    plans = (
        tiles.decode_plan(policy, TARGETS[target], policy.dtype.bytes, x) for x in (one, other)
    )
    return next(plans) != next(plans)


def objection(policy: CachePolicy, target: str, kernel: str, choice: Choice) -> str:
    """Why a choice cannot be compiled; "" if it can."""
    for name, value in zip(NUMBERS[kernel], choice, strict=True):
        least = 16 if name in ("rows", "keys") else 1
        if type(value) is not int or not least <= value <= MOST[name]:
            return f"{name} {value!r}: {least} to {MOST[name]} are possible"
        if name in ("rows", "keys", "warps") and value & (value - 1):
            return f"{name} {value}: it has to be a power of two"
    limit, needed = TARGETS[target].shared_bytes, shared_bytes(policy, kernel, choice)
    return (
        "" if needed <= limit else f"{needed >> 10} KB of shared memory, {target} has {limit >> 10}"
    )


def shared_bytes(policy: CachePolicy, kernel: str, choice: Choice) -> int:
    """At least what a program needs: what it loads ahead, and the rows that a window step keeps."""
    rows, keys, _, stages, _ = choice
    line = (
        tiles.block(policy.heads.key_dim) + tiles.block(policy.heads.value_dim)
    ) * policy.dtype.bytes
    if kernel == "key_gradients":  # walks the queries
        rows, keys = keys, rows
    kept = 0 if kernel == "decode" else rows * line // 2
    return stages * keys * line + kept
