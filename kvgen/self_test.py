"""The pytest file that `kvgen compile --tests` adds to a package: what each policy is tried with."""

from __future__ import annotations

from typing import Any

from kvgen import model
from kvgen.backends import File, preferred
from kvgen.ir import CachePolicy, Fixed, Ring
from kvgen.naming import names, natural
from kvgen.plan import PackagePlan, PolicyPlan

_OPEN_CAPACITY = 400  # slots given to `storage fixed` without a number
_FILL, _WIDTHS = 300, (5, 17)


def file(package: PackagePlan) -> File:
    name = f"test_{package.program.stem}.py"
    stored = [_case(plan) for plan in package.policies if plan.stored]
    stateless = [_case(plan) for plan in package.policies if not plan.stored]
    values: dict[str, Any] = {
        "file": name,
        "exported": sorted(
            (names(plan.policy.name)["cache"] for plan in package.policies), key=natural
        ),
        "backends": _listed(package.backends),
        "on_gpu": _listed(preferred()["cuda"][:-1]),
        "stored": stored,
        "padded": any("True" in (case["left"], case["right"]) for case in stored),
        "reversible": any(case["taken_back"] != "0" for case in stored),
        "stateless": stateless,
    }
    return File(name, "tests/test_package.py.jinja", values)


def _case(plan: PolicyPlan) -> dict[str, str]:
    policy = plan.policy
    fill, widths = _sizes(policy)
    bypass = policy.trim.bypass_tokens
    always = model.always_trimmable(policy)
    rest = _slots(policy)
    room = fill if rest is None else max(0, rest - fill - 3)
    taken_back = min(bypass or min(4 if always is None else always, 4), room)
    return {
        "cache": names(policy.name)["cache"],
        "query_heads": str(policy.heads.query),
        "fill": str(fill),
        "widths": _numbers(widths),
        "left": str(policy.padding.left),
        "right": str(policy.padding.right),
        "taken_back": str(taken_back),
        "bypass": str(0 < taken_back <= bypass),
        "scale": repr(policy.scores.scale or policy.heads.key_dim**-0.5),
        "softcap": repr(policy.scores.softcap),
        "sink_logits": str(policy.scores.sink_logits),
        "options": f'{{"capacity": {_OPEN_CAPACITY}}}'
        if isinstance(policy.storage, Fixed) and policy.storage.slots is None
        else "{}",
    }


def _sizes(policy: CachePolicy) -> tuple[int, tuple[int, ...]]:
    """(tokens stored first, widths of the windows after them): past the end of a ring, within fixed storage."""
    if isinstance(policy.storage, Ring):
        ring = model.ring_slots(policy.retention, policy.storage)
        return ring + policy.retention.sink_tokens + 3, (policy.storage.slack_slots + 1, *_WIDTHS)
    slots = _slots(policy)
    if slots is None:
        return _FILL, _WIDTHS
    fill = max(1, min(_FILL, slots // 3))
    fitting = tuple(width for width in _WIDTHS if fill + 2 * width + 4 <= slots)
    return fill, fitting or (1,)


def _slots(policy: CachePolicy) -> int | None:
    """Of fixed storage; None where there is no end."""
    if not isinstance(policy.storage, Fixed):
        return None
    return policy.storage.slots or _OPEN_CAPACITY


def _listed(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def _numbers(numbers: tuple[int, ...]) -> str:
    return f"({numbers[0]},)" if len(numbers) == 1 else f"({', '.join(map(str, numbers))})"
