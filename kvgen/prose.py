"""What emitted docstrings say of a policy: its summary, its clauses and lines, its slots, its rules of padding and trimming.

A user's names and the formatted clauses stand in docstrings only.
"""

from __future__ import annotations

from kvgen import model
from kvgen.ir import CachePolicy, Contiguous, Fixed, Ring
from kvgen.plan import ModelPlan, PackagePlan, PolicyPlan


def policy_doc(plan: PolicyPlan, package: PackagePlan, cache: str) -> dict[str, str]:
    policy = plan.policy
    return {
        "summary": f"{cache}: {_summary(policy)}.",
        "policy": _policy_text(policy, package),
        "slots": _slots_text(policy),
        "cls": f"{_summary(policy)[0].upper()}{_summary(policy)[1:]}.",
        "torch": f"The torch kernels of {cache}: {_summary(policy)}.",
        "scale": "the policy's scale"
        if policy.scores.scale is not None
        else f"1 / sqrt({policy.heads.key_dim})",
        "sink_logits": (
            f"`sink_logits` [{policy.heads.query}] join the denominator once, neither scaled nor capped."
            if policy.scores.sink_logits
            else "`sink_logits` must be None."
        ),
        "window": _window_text(policy),
        "bypass": _bypass_text(policy),
        "trim": "what later queries would see was overwritten; ask is_trimmable(n) first"
        if isinstance(policy.storage, Ring)
        else "a row has fewer; take back at most its tokens",
    }


def _summary(policy: CachePolicy) -> str:
    reach = model.reach(policy.retention)
    match policy.storage:
        case Ring():
            sinks = (
                f" and the first {policy.retention.sink_tokens}"
                if model.effective_sinks(policy.retention)
                else ""
            )
            return f"the last {_tokens(reach or 0)}{sinks} of each row, in a ring"
        case Fixed(None):
            return "the tokens of each row, in slots allocated once"
        case Fixed(slots):
            return f"up to {_tokens(slots or 0)} of each row, in slots allocated once"
        case Contiguous():
            return "all tokens of each row"
        case _:
            return "nothing is stored; for training and scoring"


def _slots_text(policy: CachePolicy) -> str:
    match policy.storage:
        case Ring() if model.effective_sinks(policy.retention):
            return "Position p < SINKS lives in slot p, any other in slot SINKS + (p - SINKS) % RING: a slot is its position\nuntil the ring wraps."
        case Ring():
            return "Position p lives in slot p % RING."
        case Fixed() | Contiguous():
            return "Position p lives in slot p."
        case _:
            return "An append hands its keys and values on to the read; positions are columns."


def _window_text(policy: CachePolicy) -> str:
    if not isinstance(policy.storage, Ring):
        return ""
    ring = model.ring_slots(policy.retention, policy.storage)
    few = (
        "One column is"
        if policy.storage.slack_slots == 0
        else f"Up to {policy.storage.slack_slots + 1} columns are"
    )
    return f"{few} written in place, up to {ring} wait beside the ring until the next append."


def _bypass_text(policy: CachePolicy) -> str:
    if policy.trim.bypass_tokens:
        return "`bypass` takes back up to BYPASS tokens of a verify window unasked."
    return "`bypass` is for policies that declare it."


def _policy_text(policy: CachePolicy, package: PackagePlan) -> str:
    file = f"{package.program.stem}.kv"
    width = max([len(item.text) for item in policy.origins] + [len(policy.name) + 5])
    lines = [f"    {f'policy {policy.name} {{':<{width + 4}}  # {file}:{policy.line}"]
    lines += [f"        {item.text:<{width}}  # {file}:{item.line}" for item in policy.origins]
    return "\n".join([*lines, "    }"])


def model_doc(plan: ModelPlan, package: PackagePlan, caches: str) -> dict[str, str]:
    return {
        "summary": f"{caches}: the caches of {_layers(plan.model.layers)}.",
        "policy": _model_text(plan, package),
        "cls": (
            f"One cache for each layer of {plan.model.name}; see `ModelCaches` for what can be done"
            " with them."
        ),
    }


def _model_text(plan: ModelPlan, package: PackagePlan) -> str:
    declared, file = plan.model, f"{package.program.stem}.kv"
    repeat = ", ".join(
        f"{e.policy} * {e.count}" if e.count > 1 else e.policy for e in declared.repeat
    )
    shares = [f"        share {share.layer} from {share.donor}" for share in declared.shares]
    head = f"    model {declared.name} {{  # {file}:{declared.line}"
    return "\n".join(
        [head, f"        layers {declared.layers}", f"        repeat {repeat}", *shares, "    }"]
    )


def _layers(count: int) -> str:
    return "one layer" if count == 1 else f"{count} layers"


def _tokens(count: int) -> str:
    return "token" if count == 1 else f"{count} tokens"
