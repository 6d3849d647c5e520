"""From a policy to its Triton kernels: what the templates say, and the tile sizes of every target, each with its reason.

Nothing here imports triton. The figures behind the tile sizes come from `kvgen audit`, which compiles every kernel for
every target without a device and holds it against kvgen/audit_budget.json.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen import model
from kvgen.backends import File
from kvgen.ir import CachePolicy, Fixed, Ring, Stateless
from kvgen.plan import PackagePlan
from kvgen.spell import modules, names

FARTHEST = 1 << 30  # kernels count positions in 32 bits: a longer window sees everything


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the policy in the emitted file, with the clause that asked for it."""

    name: str
    value: int | float
    comment: str


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


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU family, as far as plans differ: shared memory a program, and a chip's multiprocessors and bandwidth."""

    name: str
    shared_bytes: int
    multiprocessors: int
    terabytes_per_second: float

    @property
    def amd(self) -> bool:
        return self.name.startswith("gfx")


TARGETS = (
    Target("sm_80", 163 << 10, 108, 2.04),  # A100 80 GB
    Target("sm_90", 227 << 10, 132, 3.35),  # H100 SXM
    Target("sm_100", 227 << 10, 148, 8.0),  # B200
    Target("sm_120", 99 << 10, 170, 1.79),  # RTX 5090; the tiles also fit sm_86 and sm_89
    Target("gfx942", 64 << 10, 304, 5.3),  # MI300X
    Target("gfx950", 160 << 10, 256, 8.0),  # MI355X
)
INTERPRETER = Target(
    "interpreter", 1 << 30, 4, 0.0
)  # small tiles, a few splits: each way through a kernel is short

# By target and largest head dim: (rows, keys, warps, stages) of a decode step on two-byte elements. Bytes in flight decide,
# as long as three programs fit a multiprocessor; AMD has no asynchronous copies worth a third buffer. More than `rows` heads
# times columns are shared by several programs: more would spill.
DECODE_TILES = {
    "sm_80": {64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (32, 32, 4, 3)},
    "sm_90": {64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (64, 32, 4, 3)},
    "sm_100": {64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (64, 32, 4, 3)},
    "sm_120": {64: (64, 64, 4, 3), 128: (64, 64, 4, 2), 256: (32, 32, 4, 2)},
    "gfx942": {64: (64, 64, 4, 2), 128: (64, 32, 4, 2), 256: (64, 32, 4, 2)},
    "gfx950": {64: (64, 64, 4, 2), 128: (64, 64, 4, 2), 256: (64, 32, 4, 2)},
    "interpreter": {64: (64, 32, 4, 1), 128: (64, 32, 4, 1), 256: (64, 32, 4, 1)},
}

# The same of a window step: (rows, keys, warps, stages, edge stages), the largest tile that keeps its accumulator, scores
# and probabilities in registers.
WINDOW_TILES = {
    "sm_80": {64: (128, 64, 8, 3, 2), 128: (128, 32, 8, 3, 1), 256: (64, 32, 8, 2, 1)},
    "sm_90": {64: (128, 128, 8, 3, 2), 128: (128, 64, 8, 3, 2), 256: (128, 32, 8, 3, 1)},
    "sm_100": {64: (128, 128, 8, 3, 2), 128: (128, 64, 8, 3, 2), 256: (64, 64, 8, 2, 1)},
    "sm_120": {64: (128, 64, 8, 3, 2), 128: (128, 32, 8, 2, 1), 256: (64, 32, 8, 2, 1)},
    "gfx942": {64: (128, 64, 4, 1, 1), 128: (128, 32, 8, 1, 1), 256: (64, 16, 8, 1, 1)},
    "gfx950": {64: (128, 64, 4, 1, 1), 128: (128, 32, 8, 1, 1), 256: (64, 16, 8, 1, 1)},
    "interpreter": {64: (32, 32, 4, 1, 1), 128: (32, 32, 4, 1, 1), 256: (32, 32, 4, 1, 1)},
}

# Gradients of keys and of queries: (rows, keys, warps, stages, edge stages). Two accumulators leave less room.
KEY_GRADIENT_TILES = {
    "sm_80": {64: (32, 128, 8, 2, 1), 128: (64, 64, 8, 2, 1), 256: (32, 32, 8, 2, 1)},
    "sm_90": {64: (32, 128, 8, 2, 1), 128: (32, 64, 8, 2, 1), 256: (32, 32, 8, 2, 1)},
    "sm_100": {64: (64, 64, 4, 2, 1), 128: (32, 64, 8, 2, 1), 256: (32, 32, 8, 2, 1)},
    "sm_120": {64: (32, 128, 8, 2, 1), 128: (32, 64, 8, 1, 1), 256: (32, 32, 8, 1, 1)},
    "gfx942": {64: (32, 64, 4, 1, 1), 128: (16, 64, 4, 1, 1), 256: (16, 32, 4, 1, 1)},
    "gfx950": {64: (32, 64, 4, 1, 1), 128: (16, 64, 4, 1, 1), 256: (16, 32, 4, 1, 1)},
    "interpreter": {64: (32, 32, 4, 1, 1), 128: (32, 32, 4, 1, 1), 256: (32, 32, 4, 1, 1)},
}
QUERY_GRADIENT_TILES = {
    "sm_80": {64: (64, 32, 4, 2, 1), 128: (64, 64, 8, 2, 1), 256: (64, 32, 8, 2, 1)},
    "sm_90": {64: (128, 64, 8, 2, 1), 128: (128, 64, 8, 2, 1), 256: (32, 32, 4, 2, 1)},
    "sm_100": {64: (128, 64, 8, 2, 1), 128: (128, 64, 8, 2, 1), 256: (64, 32, 8, 2, 1)},
    "sm_120": {64: (64, 32, 4, 2, 1), 128: (64, 32, 4, 1, 1), 256: (64, 32, 8, 1, 1)},
    "gfx942": {64: (64, 32, 4, 1, 1), 128: (64, 32, 8, 1, 1), 256: (64, 16, 4, 1, 1)},
    "gfx950": {64: (64, 32, 4, 1, 1), 128: (64, 32, 8, 1, 1), 256: (64, 16, 4, 1, 1)},
    "interpreter": {64: (32, 32, 4, 1, 1), 128: (32, 32, 4, 1, 1), 256: (32, 32, 4, 1, 1)},
}

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


@dataclass(frozen=True, slots=True)
class TritonPlan:
    """All that the templates say. `whole_ring`: what a query sees is all that lies in its ring. `verify`: several columns
    may stand in storage at once. `limited`: a window or a chunk hides old keys.
    """

    policy: str
    constants: tuple[Constant, ...]
    plans: tuple[PlanRow, ...] | tuple[BackwardRow, ...]
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    ring: bool
    whole_ring: bool
    fixed: bool
    stateless: bool
    verify: bool
    windowed: bool
    chunked: bool
    sinks: bool
    softcap: bool
    sink_logits: bool

    @property
    def limited(self) -> bool:
        return self.windowed or self.chunked

    @property
    def wraps(self) -> bool:
        return self.ring and not self.whole_ring

    @property
    def linear(self) -> bool:
        return not self.ring and not self.stateless


def plan(policy: CachePolicy, stem: str) -> TritonPlan:
    """Decide everything about a policy's kernels."""
    heads, storage = policy.heads, policy.storage
    window, chunk, sinks = limits(policy)
    ring = isinstance(storage, Ring)
    slack = storage.slack_slots if isinstance(storage, Ring) else 0
    alike = (
        chunk is None or window is None or chunk <= window
    )  # one limit decides, so the newest are what is seen
    return TritonPlan(
        policy=policy.name,
        constants=constants(policy, stem),
        plans=backward_rows(policy) if isinstance(storage, Stateless) else plan_rows(policy),
        query_heads=heads.query,
        kv_heads=heads.kv,
        key_dim=heads.key_dim,
        value_dim=heads.value_dim,
        ring=ring,
        whole_ring=ring and slack == 0 and alike,
        fixed=isinstance(storage, Fixed),
        stateless=isinstance(storage, Stateless),
        verify=not ring or slack > 0,
        windowed=window is not None,
        chunked=chunk is not None,
        sinks=sinks > 0,
        softcap=policy.scores.softcap is not None,
        sink_logits=policy.scores.sink_logits,
    )


def limits(policy: CachePolicy) -> tuple[int | None, int | None, int]:
    """Window, chunk and sinks as kernels use them: without the limits that no row can reach."""
    retention = policy.retention
    window, chunk = (
        None if tokens is None or tokens >= FARTHEST else tokens
        for tokens in (retention.window_tokens, retention.chunk_tokens)
    )
    return window, chunk, 0 if window is None else min(retention.sink_tokens, FARTHEST)


# -- constants


def constants(policy: CachePolicy, stem: str) -> tuple[Constant, ...]:
    heads = policy.heads
    window, chunk, sinks = limits(policy)
    found = [
        ("QUERY_HEADS", heads.query, "heads"),
        ("KV_HEADS", heads.kv, "heads"),
        ("GROUP", heads.group, ""),
        ("KEY_DIM", heads.key_dim, "dim"),
        ("VALUE_DIM", heads.value_dim, "dim"),
        ("KEY_BLOCK", block(heads.key_dim), ""),
        ("VALUE_BLOCK", block(heads.value_dim), ""),
    ]
    if window is not None:
        found.append(("WINDOW", window, "window"))
    if chunk is not None:
        found.append(("CHUNK", chunk, "chunk"))
    if sinks:
        found.append(("SINKS", sinks, "sinks"))
    if isinstance(policy.storage, Ring):
        ring = model.ring_slots(policy.retention, policy.storage)
        found.append(("RING", ring, "storage"))
        found.append(("SLOTS", ring + sinks, ""))
    if policy.scores.softcap is not None:
        found.append(("SOFTCAP", policy.scores.softcap, "softcap"))
    return tuple(
        Constant(name, value, cited(policy, stem, clause)) for name, value, clause in found
    )


def cited(policy: CachePolicy, stem: str, clause: str) -> str:
    """The comment behind a constant: the clause that asked for it, where the file has it."""
    for origin in policy.origins:
        if origin.clause == clause:
            return f"  # {stem}.kv:{origin.line} {origin.text}"
    return ""


def block(dim: int) -> int:
    """Tiles are powers of two, and a matrix instruction wants 16."""
    return max(16, 1 << (dim - 1).bit_length())


# -- tile sizes


def plan_rows(policy: CachePolicy) -> tuple[PlanRow, ...]:
    rows = []
    for target in (*TARGETS, INTERPRETER):
        for size in (2, 4):
            key = f'("{target.name}", {size})'
            rows.append(
                PlanRow(key, decode_plan(policy, target, size), window_plan(policy, target, size))
            )
    return tuple(rows)


def decode_plan(policy: CachePolicy, target: Target, size: int) -> DecodePlan:
    """Splits: one wave at batch 1, two programs a multiprocessor; a split is long enough to pay for its part."""
    rows, keys, warps, stages = fitted(DECODE_TILES[target.name], policy)
    if size == 4 and target is not INTERPRETER:
        keys = max(16, keys // 2)
    least = least_split(policy, target, keys)
    wanted = min(MOST_SPLITS, -(-2 * target.multiprocessors // policy.heads.kv))
    most = most_seen(policy)
    if most is None:
        return DecodePlan(rows, keys, warps, stages, wanted, least)
    splits = max(1, min(wanted, most // least))
    split = up(-(-most // splits), keys)
    return DecodePlan(rows, keys, warps, stages, -(-most // split), split)


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


def backward_rows(policy: CachePolicy) -> tuple[BackwardRow, ...]:
    tables = WINDOW_TILES, KEY_GRADIENT_TILES, QUERY_GRADIENT_TILES
    return tuple(
        BackwardRow(
            f'("{target.name}", {size})',
            *(tile_plan(table, policy, target, size) for table in tables),
        )
        for target in (*TARGETS, INTERPRETER)
        for size in (2, 4)
    )


def window_plan(policy: CachePolicy, target: Target, size: int) -> TilePlan:
    return tile_plan(WINDOW_TILES, policy, target, size)


def tile_plan(
    table: dict[str, dict[int, tuple[int, ...]]], policy: CachePolicy, target: Target, size: int
) -> TilePlan:
    rows, keys, warps, stages, edge_stages = fitted(table[target.name], policy)
    if size == 4 and target is not INTERPRETER:  # three-pass products hold each operand twice
        rows, keys, stages = max(16, rows // 2), max(16, keys // 2), 1
    return TilePlan(rows, keys, warps, stages, edge_stages)


def fitted(tiles: dict[int, tuple[int, ...]], policy: CachePolicy) -> tuple[int, ...]:
    """The row of a table for a policy's larger dim; beyond the table keys shrink as dims grow."""
    dim = max(block(policy.heads.key_dim), block(policy.heads.value_dim))
    for largest, tile in tiles.items():
        if dim <= largest:
            return tile
    return tiles[256]


def up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


# -- words: what templates put into expressions, decided here


def words(plan: TritonPlan) -> dict[str, object]:
    """Fragments of code that follow from the flags."""
    padded_keys, padded_values = (
        block(plan.key_dim) != plan.key_dim,
        block(plan.value_dim) != plan.value_dim,
    )
    return {
        "and_key": " & (d < KEY_DIM)" if padded_keys else "",
        "and_value": " & (e < VALUE_DIM)" if padded_values else "",
        "and_part": " & (e < VALUE_DIM)[None, :]" if padded_values else "",
        "only_key": ", mask=d < KEY_DIM, other=0.0" if padded_keys else "",
        "only_value": ", mask=e < VALUE_DIM, other=0.0" if padded_values else "",
        "only_part": ", mask=e < VALUE_DIM" if padded_values else "",
        "slots": "SLOTS" if plan.ring else "columns" if plan.stateless else "slots",
        "plus_sinks": " + SINKS" if plan.sinks else "",
        "sinks_aside": ", sinks aside" if plan.sinks else "",
        "low_of_first": low_of(plan, "first"),
        "low_of_oldest": low_of(plan, "oldest"),
        "low_of_newest": low_of(plan, "after - 1"),
        "window_low_of_oldest": low_of(plan, "oldest"),
        "window_low_of_newest": low_of(plan, "newest"),
        "wrap": "ring_clean + SLOTS - slot_of(ring_clean)"
        if plan.sinks
        else "ring_clean + RING - ring_clean % RING",
        "b_slot": "SINKS" if plan.sinks else "0",
        "kept": "(p < SINKS) | (p >= end - RING)" if plan.sinks else "p >= end - RING",
        "window_sources": window_sources(plan),
        "sink_tokens": sink_tokens(plan),
        "used": used(plan),
        "rest": rest(plan),
        "slot_of": slot_of(plan),
        "high_of_last": high_of(plan, "low + KEYS - 1"),
        "high_of_first": high_of(plan, "low"),
        "seen_by_keys": seen_by_keys(plan),
    }


def window_sources(plan: TritonPlan) -> str:
    if plan.ring:
        return "the ring as it was before them, and themselves: two sources"
    return "their own sequence" if plan.stateless else "the planes that already hold them"


def sink_tokens(plan: TritonPlan) -> int:
    return next((int(constant.value) for constant in plan.constants if constant.name == "SINKS"), 0)


def low_of(plan: TritonPlan, query: str) -> str:
    if not plan.limited:
        return "0"
    return f"tl.maximum(first_seen({query}), SINKS)" if plan.sinks else f"first_seen({query})"


def high_of(plan: TritonPlan, key: str) -> str:
    return f"tl.minimum(unseen_from({key}), length)" if plan.limited else "length"


def seen_by_keys(plan: TritonPlan) -> str:
    if plan.chunked:
        return "(p[None, :] >= key[:, None]) & (key[:, None] >= first_seen(p)[None, :])"
    if plan.windowed:
        return "(p[None, :] - key[:, None]).to(tl.uint32, bitcast=True) < WINDOW"
    return "p[None, :] >= key[:, None]"


def used(plan: TritonPlan) -> str:
    if plan.chunked:
        return "tl.where(after > 0, (after - 1) % CHUNK + 1, 0)"
    return (
        "tl.minimum(tl.maximum(after, SINKS), SLOTS)" if plan.sinks else "tl.minimum(after, RING)"
    )


def rest(plan: TritonPlan) -> str:
    parts = ["sinks"] if plan.sinks else []
    if plan.verify:
        parts.append("edges of the columns")
    tails = "what is left of both runs" if plan.wraps else "what is left of the run"
    return ", ".join([*parts, tails])


def slot_of(plan: TritonPlan) -> tuple[str, ...]:
    if not plan.ring:
        return ("return position",)
    if plan.sinks:
        return (
            "ring = tl.maximum(position - SINKS, 0) % RING + SINKS",
            "return tl.where(position < SINKS, position, ring)",
        )
    return ("return position % RING",)


def context(plan: TritonPlan) -> dict[str, object]:
    """What a template sees: the plan's fields, its flags and the words that follow."""
    fields = {field: getattr(plan, field) for field in plan.__dataclass_fields__}
    flags = {
        "limited": plan.limited,
        "chunk_in_window": plan.windowed and plan.chunked,
        "wraps": plan.wraps,
        "linear": plan.linear,
        "grows": plan.linear and not plan.fixed,
    }
    named = {"name": names(plan.policy), "module": modules(plan.policy), "summary": summary(plan)}
    return {**fields, **flags, **named, **words(plan)}


def summary(plan: TritonPlan) -> str:
    if plan.stateless:
        return "attention and its gradients, for training and scoring"
    if plan.ring:
        return "append, decode and verify straight from the ring, windows beside it"
    return "append, decode, verify and windows over slots in the order of positions"


def files(package: PackagePlan) -> tuple[File, ...]:
    plans = [plan(one.policy, package.program.stem) for one in package.policies]
    shared = [("_launch.py", plans), ("_triton.py", [one for one in plans if not one.stateless])]
    shared += [("_trained.py", [one for one in plans if one.stateless])]
    return (
        *(File(name, f"triton/{name}.jinja", {}) for name, users in shared if users),
        *(
            File(
                f"{modules(one.policy)['triton']}.py",
                "triton/stateless.py.jinja" if one.stateless else "triton/stored.py.jinja",
                context(one),
            )
            for one in plans
        ),
    )
