"""From a policy to its Triton kernels: what the templates say. Tile sizes are decided in triton_tiles.

Nothing here imports triton.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen import model
from kvgen.backends import File
from kvgen.backends.triton_tiles import (
    FEW_CLEAN,
    BackwardRow,
    PlanRow,
    all_edge,
    backward_rows,
    block,
    limits,
    plan_rows,
)
from kvgen.backends.triton_why import decisions
from kvgen.ir import CachePolicy, Fixed, Ring, Stateless
from kvgen.naming import modules, names
from kvgen.plan import PackagePlan
from kvgen.tuned import Table

__all__ = ["decisions", "files"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the policy in the emitted file, with the clause that asked for it or what it follows from."""

    name: str
    value: int | float
    comment: str


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
    short: bool
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


def plan(policy: CachePolicy, stem: str, tuned: Table = ()) -> TritonPlan:
    """Decide everything about a policy's kernels. `tuned`: what was measured of them."""
    measured = {(entry.kernel, entry.target): entry.choice for entry in tuned}
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
        plans=backward_rows(policy, measured)
        if isinstance(storage, Stateless)
        else plan_rows(policy, measured),
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
        short=all_edge(policy),
        sinks=sinks > 0,
        softcap=policy.scores.softcap is not None,
        sink_logits=policy.scores.sink_logits,
    )


# -- constants


def constants(policy: CachePolicy, stem: str) -> tuple[Constant, ...]:
    heads = policy.heads
    window, chunk, sinks = limits(policy)
    found: list[tuple[str, int | float, str]] = [
        ("QUERY_HEADS", heads.query, "heads"),
        ("KV_HEADS", heads.kv, "heads"),
        ("GROUP", heads.group, "query heads that read a kv head"),
        ("KEY_DIM", heads.key_dim, "dim"),
        ("VALUE_DIM", heads.value_dim, "dim"),
        ("KEY_BLOCK", block(heads.key_dim), "the power of two that holds it"),
        ("VALUE_BLOCK", block(heads.value_dim), "the power of two that holds it"),
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
        found.append(("SLOTS", ring + sinks, f"of a row: {'sinks and ' if sinks else ''}the ring"))
    if policy.scores.softcap is not None:
        found.append(("SOFTCAP", policy.scores.softcap, "softcap"))
    return tuple(
        Constant(name, value, cited(policy, stem, clause)) for name, value, clause in found
    )


def cited(policy: CachePolicy, stem: str, clause: str) -> str:
    """The comment behind a constant: the clause that asked for it, where the file has it; or what it follows from."""
    for origin in policy.origins:
        if origin.clause == clause:
            return f"  # {stem}.kv:{origin.line} {origin.text}"
    return f"  # {clause}" if " " in clause else ""


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
        "reach": reach_of(plan),
        "few_clean": FEW_CLEAN,
        "used": used(plan),
        "rest": rest(plan),
        "run": "" if plan.wraps else "run_",
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


def reach_of(plan: TritonPlan) -> str:
    """The constant that says how many positions a query sees at most, sinks aside; "" without a limit."""
    named = {constant.name: int(constant.value) for constant in plan.constants}
    return min(
        (name for name in ("WINDOW", "CHUNK") if name in named), key=named.__getitem__, default=""
    )


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
    plans = [plan(one.policy, package.program.stem, one.tuned) for one in package.policies]
    stored = [one for one in plans if not one.stateless]
    shared = [("_ahead.py", plans), ("_launch.py", plans)]
    shared += [(name, stored) for name in ("_made.py", "_places.py", "_triton.py")]
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
