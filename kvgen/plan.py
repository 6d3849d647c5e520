"""IR to plan: what is stored, how each phase writes and reads it, which kernels do it, and why.

All decisions are here, as numbers, flags and a sentence for each; emit.py and the templates only spell them. Rules of
visibility, slots and trimming are asked of model.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvgen import backends as registry
from kvgen import model
from kvgen.backends import BACKENDS
from kvgen.ir import CachePolicy, Contiguous, Fixed, Model, Program, Ring, Stateless

if TYPE_CHECKING:
    from kvgen.tuned import Table


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice in words a user understands."""

    topic: str
    choice: str
    why: str


@dataclass(frozen=True, slots=True)
class Plane:
    """One stored array, [B, heads, slots, dim]. A policy has a tuple of them, so that quantised ones can join."""

    name: str
    heads: int
    dim: int
    dtype: str


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """How one policy becomes a cache. Slots and trim rules are not repeated here: `model` says them."""

    policy: CachePolicy
    planes: tuple[Plane, ...]  # none where nothing is stored
    backends: tuple[str, ...]
    decisions: tuple[Decision, ...]
    tuned: Table  # what was measured of its kernels

    @property
    def stored(self) -> bool:
        return bool(self.planes)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The caches of a model. Policies by name; nothing is expanded to one entry a layer."""

    model: Model
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class PackagePlan:
    """All that one .kv file becomes."""

    program: Program
    policies: tuple[PolicyPlan, ...]
    models: tuple[ModelPlan, ...]
    backends: tuple[str, ...]


def plan(program: Program, backends: Collection[str] = BACKENDS, tuned: Table = ()) -> PackagePlan:
    """Decide everything about the package of one file. The backend that runs everywhere is always in it."""
    chosen = tuple(name for name in BACKENDS if name == registry.EVERYWHERE or name in backends)
    policies = tuple(plan_policy(policy, chosen, tuned) for policy in program.policies)
    return PackagePlan(program, policies, tuple(map(plan_model, program.models)), chosen)


def plan_policy(policy: CachePolicy, backends: tuple[str, ...], tuned: Table = ()) -> PolicyPlan:
    heads = policy.heads
    planes = (
        Plane("keys", heads.kv, heads.key_dim, policy.dtype.torch_name),
        Plane("values", heads.kv, heads.value_dim, policy.dtype.torch_name),
    )
    return PolicyPlan(
        policy=policy,
        planes=() if isinstance(policy.storage, Stateless) else planes,
        backends=backends,
        decisions=(
            _slots(policy),
            *_appends(policy),
            *_reads(policy),
            _trimming(policy),
            _bytes(policy),
        ),
        tuned=tuple(entry for entry in tuned if entry.policy == policy.name),
    )


def plan_model(declared: Model) -> ModelPlan:
    owned = declared.layers - len(declared.shares)
    why = f"{len(declared.shares)} of {declared.layers} layers read another layer's keys and values"
    return ModelPlan(declared, (Decision("caches", f"{owned} caches", why),))


# -- the decisions, each with its reason


def _slots(policy: CachePolicy) -> Decision:
    capacity, sinks = model.capacity(policy), policy.retention.sink_tokens
    match policy.storage:
        case Ring(slack):
            parts = f"{model.reach(policy.retention)} that a query sees, {slack} of slack, {sinks} for sinks"
            return Decision("slots", f"{capacity} a row, for ever", parts)
        case Fixed(None):
            return Decision(
                "slots",
                "as many a row as `capacity` says",
                "`storage fixed` leaves the number open",
            )
        case Fixed():
            return Decision(
                "slots",
                f"{capacity} a row, allocated once",
                "`storage fixed`; one token more is an error",
            )
        case Contiguous():
            step = model.GROWTH_SLOTS
            return Decision(
                "slots",
                f"as many as the row has tokens, in steps of {step}",
                "every token stays visible or held",
            )
        case _:
            return Decision("slots", "none", "`stateless`: keys and values pass through")


def _appends(policy: CachePolicy) -> tuple[Decision, ...]:
    match policy.storage:
        case Ring(slack):
            reach = model.reach(policy.retention)
            ring = model.ring_slots(policy.retention, policy.storage)
            return (
                Decision(
                    "decode write",
                    "in place, slot = position modulo the ring",
                    "it overwrites what no query sees any more",
                ),
                Decision(
                    f"window write, up to {slack + 1} columns",
                    "in place",
                    f"{ring} slots hold the {reach} tokens of the first query and the columns after it",
                ),
                Decision(
                    f"window write, {slack + 2} to {ring} columns",
                    "beside the ring until the next append",
                    "they would overwrite what their own first query sees; and all of them can still be taken back",
                ),
                Decision(
                    f"window write, over {ring} columns",
                    "beside the ring, then the newest into it",
                    "nothing pins a prefill",
                ),
            )
        case Stateless():
            return ()
        case _:
            return (Decision("write", "in place, slot = position", "nothing is ever overwritten"),)


def _reads(policy: CachePolicy) -> tuple[Decision, ...]:
    packed = Decision(
        "heads",
        f"{policy.heads.group} query heads of a kv head packed as rows",
        "keys and values are read once and never repeated in memory",
    )
    match policy.storage:
        case Ring(0) if policy.retention.chunk_tokens is None:
            read = Decision(
                "decode read",
                "all slots in physical order, no mask once the ring is full",
                "a full ring is exactly what the query sees, and softmax does not care about order",
            )
        case Ring():
            read = Decision(
                "decode read",
                "all slots in physical order, masked by position",
                "slack and chunk borders leave slots that the query does not see",
            )
        case Stateless():
            read = Decision(
                "read",
                "tiles of the k and v handed in, masked only at their edges",
                "one pass over the whole sequence",
            )
        case _:
            read = Decision(
                "decode read",
                "the slots from first(p) to p, no mask",
                "a token's slot is its position",
            )
    return (packed, read)


def _trimming(policy: CachePolicy) -> Decision:
    always = model.always_trimmable(policy)
    bypass = policy.trim.bypass_tokens
    unasked = f"; up to {bypass} unasked after a verify window" if bypass else ""
    if isinstance(policy.storage, Stateless):
        return Decision("trim", "nothing to take back", "nothing is stored")
    if always == 0:
        return Decision("trim", "never", "`trim off`")
    if always is None:
        return Decision(
            "trim",
            f"any number of tokens, at any time{unasked}",
            "no later read needs a token that was overwritten",
        )
    why = "a full ring keeps as many tokens older than the window; more only while they wait beside it"
    return Decision("trim", f"up to {always} tokens at any time{unasked}", why)


def _bytes(policy: CachePolicy) -> Decision:
    token = model.bytes_per_token(policy.heads, policy.dtype)
    capacity = model.capacity(policy)
    if isinstance(policy.storage, Stateless):
        return Decision("bytes", "0 stored", f"a token's keys and values are {token} bytes")
    total = f"{token * capacity:,} a row" if capacity is not None else f"{token:,} a token"
    return Decision(
        "bytes",
        total,
        f"{policy.heads.kv} heads * ({policy.heads.key_dim} + {policy.heads.value_dim}) * {policy.dtype.bytes} bytes",
    )


def decisions(policy: PolicyPlan) -> tuple[Decision, ...]:
    """All that was decided of a policy: what its backends share, then what each decides alone."""
    own = (one for name in policy.backends for one in registry.decisions(name, policy))
    return (*policy.decisions, *own)


def describe(package: PackagePlan) -> str:
    """The plan as `kvgen compile --emit plan` prints it."""
    lines: list[str] = []
    for policy in package.policies:
        lines += [f"policy {policy.policy.name}", *_table(decisions(policy)), ""]
    for caches in package.models:
        lines += [f"model {caches.model.name}", *_table(caches.decisions), ""]
    return "\n".join(lines)


def _table(decisions: tuple[Decision, ...]) -> list[str]:
    width = max(len(decision.topic) for decision in decisions)
    return [
        f"    {d.topic:<{width}}  {d.choice}\n    {'':<{width}}  because {d.why}" for d in decisions
    ]
