"""Plan to template values: every number and expression that an emitted file of a policy contains.

The templates hold the text; nothing is decided here. Expressions use fixed words only: a user's names become class names,
file names and comments, never code.
"""

from __future__ import annotations

from typing import Any

from kvgen import model
from kvgen.ir import CachePolicy, Contiguous, Fixed, Ring
from kvgen.naming import class_name, modules, names
from kvgen.plan import ModelPlan, PackagePlan, PolicyPlan
from kvgen.prose import model_doc, policy_doc

ROUNDING = 63  # slots a row that contiguous storage may have too many before it gives them back


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
        "rounding": ROUNDING,
        "constants": _constants(policy, package),
        "first_seen": _first_seen(policy),
        "seen": _seen(policy),
        "first_needed": "max(SINKS, first_seen(offset))" if sinks else "first_seen(offset)",
        "oldest_limit": "offset" if sinks else "min(offset, first_seen(offset))",
        "oldest_shown": "max(SINKS, row.last + 1 - RING)"
        if sinks
        else "max(0, row.last + 1 - RING)",
        "mask_numbers": ", ".join(_limits(policy, ring)) or '"full"',
        "stateless_key": _stateless_key(policy),
        "per_row": _per_row(policy),
        "kernels": _kernels(plan),
        "stored_text": _stored_text(policy),
        "share_decode": isinstance(policy.storage, Ring)
        and (chunk is not None or policy.storage.slack_slots > 0),
        "imports": _imports(policy),
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


def _limits(policy: CachePolicy, ring: bool) -> list[str]:
    """The constants that a mask depends on."""
    retention = policy.retention
    return [
        *(["WINDOW"] if retention.window_tokens is not None else []),
        *(["SINKS"] if model.effective_sinks(policy.retention) else []),
        *(["CHUNK"] if retention.chunk_tokens is not None else []),
        *(["RING"] if ring else []),
    ]


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
    listed = ", ".join(f'"{field}"' for field in fields)
    return f"({listed},)" if len(fields) == 1 else f"({listed})"


def _kernels(plan: PolicyPlan) -> list[dict[str, str]]:
    """The kernel class of each backend, as "module.Class"."""
    module, name = modules(plan.policy.name), names(plan.policy.name)
    return [
        {"backend": backend, "path": f"{module[backend]}.{name[backend]}"}
        for backend in plan.backends
    ]


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


# -- names, constants and words


def _constants(policy: CachePolicy, package: PackagePlan) -> list[dict[str, str]]:
    retention, scores, storage = policy.retention, policy.scores, policy.storage
    origin = {
        item.clause: f"{package.program.stem}.kv:{item.line} {item.text}" for item in policy.origins
    }
    found: list[tuple[str, object, str]] = []
    if retention.window_tokens is not None:
        found.append(("WINDOW", retention.window_tokens, origin["window"]))
    if model.effective_sinks(policy.retention):
        found.append(("SINKS", retention.sink_tokens, origin["sinks"]))
    if retention.chunk_tokens is not None:
        found.append(("CHUNK", retention.chunk_tokens, origin["chunk"]))
    if isinstance(storage, Ring):
        found += _ring_constants(policy, origin)
    if isinstance(storage, Fixed) and storage.slots is not None:
        found.append(("SLOTS", storage.slots, origin["storage"]))
    if policy.trim.bypass_tokens:
        found.append(("BYPASS", policy.trim.bypass_tokens, origin["trim"]))
    scale = f"{policy.heads.key_dim}**-0.5" if scores.scale is None else repr(scores.scale)
    found.append(("SCALE", scale, origin.get("scale", "the default: 1 / sqrt(key dim)")))
    if scores.softcap is not None:
        found.append(("SOFTCAP", repr(scores.softcap), origin["softcap"]))
    return [{"name": name, "value": str(value), "why": why} for name, value, why in found]


def _ring_constants(policy: CachePolicy, origin: dict[str, str]) -> list[tuple[str, object, str]]:
    assert isinstance(policy.storage, Ring)
    slack, retention = policy.storage.slack_slots, policy.retention
    both = retention.window_tokens is not None and retention.chunk_tokens is not None
    reach = (
        "min(WINDOW, CHUNK)"
        if both
        else "WINDOW"
        if retention.window_tokens is not None
        else "CHUNK"
    )
    found: list[tuple[str, object, str]] = []
    if slack:
        why = origin.get("storage", origin.get("trim", ""))
        found.append(("SLACK", slack, why))
    found.append(
        ("RING", f"{reach} + SLACK" if slack else reach, "slots that are overwritten in turn")
    )
    found.append(
        (
            "SLOTS",
            "SINKS + RING" if model.effective_sinks(policy.retention) else "RING",
            "slots a row",
        )
    )
    return found


def _imports(policy: CachePolicy) -> dict[str, Any]:
    """What the other modules of a policy take from its policy module."""
    ring, sinks = isinstance(policy.storage, Ring), bool(model.effective_sinks(policy.retention))
    first = ["first_seen"] if _first_seen(policy) else []
    limits = _limits(policy, ring)
    in_cache = [
        *(["BYPASS"] if policy.trim.bypass_tokens else []),
        *(["RING"] if ring else []),
        "SCALE",
        *(["SINKS"] if ring and sinks else []),
        *(["SLACK"] if _in_place(policy) != "1" else []),
        *(
            ["SLOTS"]
            if ring or (isinstance(policy.storage, Fixed) and policy.storage.slots)
            else []
        ),
        *(first if ring and (policy.trim.guarded or not sinks) else []),
        "runs",
    ]
    in_torch = [
        *limits,
        *(["SLOTS"] if ring else []),
        *(["SOFTCAP"] if policy.scores.softcap is not None else []),
        *first,
        "seen",
    ]
    stateless = not isinstance(policy.storage, (Ring, Fixed, Contiguous))
    return {
        "policy": _sorted(in_cache),
        "torch": _listed(in_torch if stateless else [*in_torch, "runs"]),
    }


def _sorted(names: list[str]) -> list[str]:
    """Constants first, as ruff sorts them."""
    return sorted(names, key=lambda name: (not name.isupper(), name))


def _listed(names: list[str]) -> str:
    return ", ".join(_sorted(names))


def _padding(policy: CachePolicy) -> str:
    sides = [
        side
        for side, allowed in (("left", policy.padding.left), ("right", policy.padding.right))
        if allowed
    ]
    return f"padding {' '.join(sides) or 'none'}"
