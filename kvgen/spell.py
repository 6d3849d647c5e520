"""Plan to template values: every number and expression that an emitted file of a policy contains.

The templates hold the text; nothing is decided here. Expressions use fixed words only: a user's names become class names,
file names and comments, never code.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kvgen import model
from kvgen.backends import BACKENDS, preferred
from kvgen.constants import constants, imports, limits
from kvgen.ir import CachePolicy, Contiguous, Fixed, Ring
from kvgen.naming import class_name, modules, names
from kvgen.plan import ModelPlan, PackagePlan, PolicyPlan
from kvgen.prose import model_doc, policy_doc


def policy_values(plan: PolicyPlan, package: PackagePlan) -> dict[str, Any]:
    """The values of all templates of one policy."""
    policy = plan.policy
    heads, retention = policy.heads, policy.retention
    window, sinks, chunk = (
        retention.window_tokens,
        model.effective_sinks(policy.retention),
        retention.chunk_tokens,
    )
    ring = isinstance(policy.storage, Ring)
    return {
        "name": names(policy.name),
        "module": modules(policy.name),
        "query_heads": heads.query,
        "kv_heads": heads.kv,
        "group": heads.group,
        "key_dim": heads.key_dim,
        "value_dim": heads.value_dim,
        "dtype": policy.dtype.torch_name,
        "window_value": window,
        "sinks_value": retention.sink_tokens,
        "chunk_value": chunk,
        "window": window is not None,
        "sinks": bool(sinks),
        "chunk": chunk is not None,
        "softcap": policy.scores.softcap is not None,
        "sink_logits": policy.scores.sink_logits,
        "stored": plan.stored,
        "ring": ring,
        "contiguous": isinstance(policy.storage, Contiguous),
        "fixed_slots": isinstance(policy.storage, Fixed) and policy.storage.slots is not None,
        "open_capacity": isinstance(policy.storage, Fixed) and policy.storage.slots is None,
        "left": policy.padding.left,
        "right": policy.padding.right,
        "padded": policy.padding.left or policy.padding.right,
        "padding_text": _padding(policy),
        "trim_off": not policy.trim.guarded,
        "bypass": policy.trim.bypass_tokens > 0,
        "in_place": _in_place(policy),
        "growth": model.GROWTH_SLOTS,
        "rounding": model.SPARE_SLOTS,
        "constants": constants(policy, package.program.stem),
        "first_seen": _first_seen(policy),
        "seen": _seen(policy),
        "first_needed": "max(SINKS, first_seen(offset))" if sinks else "first_seen(offset)",
        "oldest_limit": "offset" if sinks else "min(offset, first_seen(offset))",
        "oldest_shown": "max(SINKS, row.last + 1 - RING)"
        if sinks
        else "max(0, row.last + 1 - RING)",
        "mask_numbers": ", ".join(limits(policy)) or '"full"',
        "stateless_key": _stateless_key(policy),
        "per_row": _per_row(policy),
        "kernels": _kernels(plan),
        "stored_text": _stored_text(policy),
        "scores_text": _scores_text(policy),
        "share_decode": isinstance(policy.storage, Ring)
        and (chunk is not None or policy.storage.slack_slots > 0),
        "imports": imports(policy),
        "doc": policy_doc(plan, package, names(policy.name)["cache"]),
    }


def model_values(plan: ModelPlan, package: PackagePlan) -> dict[str, Any]:
    declared = plan.model
    stem = class_name(declared.name)
    used = dict.fromkeys(entry.policy for entry in declared.repeat)
    donors = ", ".join(f"{share.layer}: {share.donor}" for share in declared.shares)
    return {
        "name": {"caches": f"{stem}Caches"},
        "module": f"{declared.name.lower()}_caches",
        "layers": declared.layers,
        "one_entry": len(declared.repeat) == 1,
        "pattern": [
            {"cache": names(entry.policy)["cache"], "count": entry.count}
            for entry in declared.repeat
        ],
        "donors": f"{{{donors}}}",
        "imports": sorted(
            ({"module": modules(name)["cache"], "cache": names(name)["cache"]} for name in used),
            key=lambda item: item["module"],
        ),
        "doc": model_doc(plan, package, f"{stem}Caches"),
    }


def backend_words() -> dict[str, str]:
    """All backends there are, as emitted code and its messages name them."""
    quoted = [f"'{name}'" for name in BACKENDS]
    turns = (f'"{device}": {_tuple(names)}' for device, names in preferred().items())
    return {
        "known": _tuple(BACKENDS),
        "named": f"{', '.join(quoted[:-1])} or {quoted[-1]}",
        "preferred": f"{{{', '.join(turns)}}}",
    }


# -- expressions


def _first_seen(policy: CachePolicy) -> str | None:
    window, chunk = (
        policy.retention.window_tokens is not None,
        policy.retention.chunk_tokens is not None,
    )
    match window, chunk:
        case True, True:
            return "max(0, p - WINDOW + 1, p - p % CHUNK)"
        case True, False:
            return "max(0, p - WINDOW + 1)"
        case False, True:
            return "max(0, p - p % CHUNK)"
        case _:
            return None


def _seen(policy: CachePolicy) -> str:
    terms = ["(q >= k)"]
    if policy.retention.window_tokens is not None:
        terms.append(
            "((q - k < WINDOW) | (k < SINKS))"
            if model.effective_sinks(policy.retention)
            else "(q - k < WINDOW)"
        )
    if policy.retention.chunk_tokens is not None:
        terms.append("(k // CHUNK == q // CHUNK)")
    return " & ".join(terms) if len(terms) > 1 else "q >= k"


def _stateless_key(policy: CachePolicy) -> str:
    window, chunk = (
        policy.retention.window_tokens is not None,
        policy.retention.chunk_tokens is not None,
    )
    by_window = "min(one.width, WINDOW)" if window else "one.width"
    by_chunk = "min(one.width, CHUNK)" if chunk else "one.width"
    sinks = "SINKS if one.width > WINDOW else 0" if model.effective_sinks(policy.retention) else "0"
    return f"{by_window}, {by_chunk}, {sinks}"


def _in_place(policy: CachePolicy) -> str:
    return "SLACK + 1" if isinstance(policy.storage, Ring) and policy.storage.slack_slots else "1"


def _per_row(policy: CachePolicy) -> str:
    fields = ["_offsets"]
    if isinstance(policy.storage, Ring):
        fields.append("_oldest")
    if policy.trim.bypass_tokens:
        fields.append("_verified")
    return _tuple(fields)


def _tuple(words: Collection[str]) -> str:
    listed = ", ".join(f'"{word}"' for word in words)
    return f"({listed},)" if len(words) == 1 else f"({listed})"


def _kernels(plan: PolicyPlan) -> list[dict[str, str]]:
    """The kernel class of each backend, as "module.Class"."""
    module, name = modules(plan.policy.name), names(plan.policy.name)
    return [
        {"backend": backend, "path": f"{module[backend]}.{name[backend]}"}
        for backend in plan.backends
    ]


def _scores_text(policy: CachePolicy) -> str:
    scores = policy.scores
    parts = [f"query {policy.heads.query}"]
    parts += [] if scores.scale is None else [f"scale {scores.scale}"]
    parts += [] if scores.softcap is None else [f"softcap {scores.softcap}"]
    parts += ["sink logits"] if scores.sink_logits else []
    return ", ".join(parts)


def _stored_text(policy: CachePolicy) -> str:
    """What a signature says of the storage."""
    match policy.storage:
        case Ring():
            return f"ring of {model.capacity(policy)} slots"
        case Fixed(slots):
            return f"{slots} slots"
        case Contiguous():
            return "contiguous"
        case _:
            return "stateless"


# -- words


def _padding(policy: CachePolicy) -> str:
    sides = [
        side
        for side, allowed in (("left", policy.padding.left), ("right", policy.padding.right))
        if allowed
    ]
    return f"padding {' '.join(sides) or 'none'}"
