"""What the emitted `hf.py` says: every value prepared, so that its template only spells."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from kvgen import ir, model
from kvgen.backends import File
from kvgen.naming import class_name, natural


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """One policy's line in `hf.py`: arguments of `Facts` as they are written there."""

    name: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Run:
    """`count` layers in a row of policy number `index`."""

    count: int
    index: int
    policy: str


@dataclass(frozen=True, slots=True)
class ModelClass:
    class_name: str
    module: str
    caches_name: str
    layers: int
    repeat: str
    runs: tuple[Run, ...]
    donors: tuple[tuple[int, int], ...]
    stateless: bool


@dataclass(frozen=True, slots=True)
class HFPlan:
    """`imports` and `exports` are in the order in which import sorters put them."""

    stateless: bool
    example: str
    exports: tuple[str, ...]
    policies: tuple[PolicyFacts, ...]
    models: tuple[ModelClass, ...]
    imports: tuple[ModelClass, ...]


def files(program: ir.Program) -> list[File]:
    """`hf.py` and what it needs, for a package with models."""
    if not program.models:
        return []
    plan = hf_plan(program)
    shared = [
        "_hf",
        "_hf_binding",
        "_hf_cache",
        "_hf_columns",
        "_hf_fit",
        "_hf_layers",
        "_hf_reads",
        "_hf_state",
    ]
    shared += ["_hf_stateless"] if plan.stateless else []
    modules = [File(f"{name}.py", f"hf/{name}.py.jinja", {}) for name in shared]
    return [File("hf.py", "hf/hf.py.jinja", asdict(plan)), *modules]


def hf_plan(program: ir.Program) -> HFPlan:
    """The plan of `hf.py` for a program that declares models."""
    used = {entry.policy for declared in program.models for entry in declared.repeat}
    policies = [policy for policy in program.policies if policy.name in used]
    index = {policy.name: i for i, policy in enumerate(policies)}
    stateless = {p.name for p in policies if isinstance(p.storage, ir.Stateless)}
    models = tuple(_model_class(declared, index, stateless) for declared in program.models)
    return HFPlan(
        any(declared.stateless for declared in models),
        models[0].class_name,
        tuple(sorted((declared.class_name for declared in models), key=natural)),
        tuple(PolicyFacts(policy.name, _facts(policy)) for policy in policies),
        models,
        tuple(sorted(models, key=lambda declared: natural(declared.module))),
    )


def _model_class(declared: ir.Model, index: dict[str, int], stateless: set[str]) -> ModelClass:
    runs = tuple(Run(e.count, index[e.policy], e.policy) for e in declared.repeat)
    return ModelClass(
        class_name=f"{class_name(declared.name)}HFCache",
        module=f"{declared.name.lower()}_caches",
        caches_name=f"{class_name(declared.name)}Caches",
        layers=declared.layers,
        repeat=", ".join(r.policy if r.count == 1 else f"{r.policy} * {r.count}" for r in runs),
        runs=runs,
        donors=tuple((share.layer, share.donor) for share in declared.shares),
        stateless=all(run.policy in stateless for run in runs),
    )


def _facts(policy: ir.CachePolicy) -> tuple[tuple[str, str], ...]:
    heads, scores, retention = policy.heads, policy.scores, policy.retention
    storage = policy.storage
    ring = model.ring_slots(retention, storage) if isinstance(storage, ir.Ring) else None
    return (
        ("query_heads", repr(heads.query)),
        ("kv_heads", repr(heads.kv)),
        ("key_dim", repr(heads.key_dim)),
        ("value_dim", repr(heads.value_dim)),
        ("scale", repr(heads.key_dim**-0.5 if scores.scale is None else float(scores.scale))),
        ("softcap", repr(scores.softcap)),
        ("sink_logits", repr(scores.sink_logits)),
        ("window", repr(retention.window_tokens)),
        ("chunk", repr(retention.chunk_tokens)),
        ("sinks", repr(retention.sink_tokens)),
        ("ring", repr(ring)),
        ("trimmable", repr(policy.trim.guarded or policy.trim.bypass_tokens > 0)),
        ("stateless", repr(isinstance(storage, ir.Stateless))),
    )
