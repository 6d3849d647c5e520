"""The constants of a policy's module, each with the clause behind it, and what the other modules of the policy import of it."""

from __future__ import annotations

from typing import Any

from kvgen import model
from kvgen.ir import CachePolicy, Fixed, Retention, Ring, Stateless

Constant = tuple[str, object, str]  # name, value, the clause behind it


def constants(policy: CachePolicy, stem: str) -> list[dict[str, str]]:
    """Name, value and the clause behind it, in the order of the file."""
    retention, scores, storage = policy.retention, policy.scores, policy.storage
    origin = {item.clause: f"{stem}.kv:{item.line} {item.text}" for item in policy.origins}
    found: list[Constant] = []
    if retention.window_tokens is not None:
        found.append(("WINDOW", retention.window_tokens, origin["window"]))
    if model.effective_sinks(retention):
        found.append(("SINKS", retention.sink_tokens, origin["sinks"]))
    if retention.chunk_tokens is not None:
        found.append(("CHUNK", retention.chunk_tokens, origin["chunk"]))
    if isinstance(storage, Ring):
        found += _ring_constants(storage, retention, origin)
    if isinstance(storage, Fixed) and storage.slots is not None:
        found.append(("SLOTS", storage.slots, origin["storage"]))
    if policy.trim.bypass_tokens:
        found.append(("BYPASS", policy.trim.bypass_tokens, origin["trim"]))
    scale = f"{policy.heads.key_dim}**-0.5" if scores.scale is None else repr(scores.scale)
    found.append(("SCALE", scale, origin.get("scale", "the default: 1 / sqrt(key dim)")))
    if scores.softcap is not None:
        found.append(("SOFTCAP", repr(scores.softcap), origin["softcap"]))
    return [{"name": name, "value": str(value), "why": why} for name, value, why in found]


def _ring_constants(storage: Ring, retention: Retention, origin: dict[str, str]) -> list[Constant]:
    named = {"WINDOW": retention.window_tokens, "CHUNK": retention.chunk_tokens}
    given = [name for name, tokens in named.items() if tokens is not None]
    reach = given[0] if len(given) == 1 else f"min({', '.join(given)})"
    ring = f"{reach} + SLACK" if storage.slack_slots else reach
    slots = "SINKS + RING" if model.effective_sinks(retention) else "RING"
    slack = ("SLACK", storage.slack_slots, origin.get("storage", origin.get("trim", "")))
    return [
        *([slack] if storage.slack_slots else []),
        ("RING", ring, "slots that are overwritten in turn"),
        ("SLOTS", slots, "slots a row"),
    ]


def imports(policy: CachePolicy) -> dict[str, Any]:
    """What the cache's module and the torch kernels take from the policy's module."""
    storage, sinks = policy.storage, bool(model.effective_sinks(policy.retention))
    ring = isinstance(storage, Ring)
    declared = isinstance(storage, Fixed) and storage.slots is not None
    in_cache = {
        "BYPASS": policy.trim.bypass_tokens > 0,
        "RING": ring,
        "SCALE": True,
        "SINKS": ring and sinks,
        "SLACK": isinstance(storage, Ring) and storage.slack_slots > 0,
        "SLOTS": ring or declared,
        "first_seen": ring and (policy.trim.guarded or not sinks),
        "runs": True,
    }
    in_torch = {
        **dict.fromkeys(limits(policy), True),
        "SLOTS": ring,
        "SOFTCAP": policy.scores.softcap is not None,
        "first_seen": model.reach(policy.retention) is not None,
        "seen": True,
        "runs": not isinstance(storage, Stateless),
    }
    return {"policy": _needed(in_cache), "torch": ", ".join(_needed(in_torch))}


def _needed(names: dict[str, bool]) -> list[str]:
    """Constants first, as ruff sorts them."""
    needed = (name for name, is_needed in names.items() if is_needed)
    return sorted(needed, key=lambda name: (not name.isupper(), name))


def limits(policy: CachePolicy) -> list[str]:
    """The constants that a mask depends on."""
    retention = policy.retention
    return [
        *(["WINDOW"] if retention.window_tokens is not None else []),
        *(["SINKS"] if model.effective_sinks(retention) else []),
        *(["CHUNK"] if retention.chunk_tokens is not None else []),
        *(["RING"] if isinstance(policy.storage, Ring) else []),
    ]
