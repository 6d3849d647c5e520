"""The tile sizes of a policy's Triton kernels in words, each with its reason, for `kvgen compile --emit plan`."""

from __future__ import annotations

from kvgen.backends import triton_choices as choices
from kvgen.backends import triton_tiles as tiles
from kvgen.ir import CachePolicy
from kvgen.plan import Decision, PolicyPlan
from kvgen.tuned import Entry

WHY = {
    "window": "the largest tile whose accumulator, scores and probabilities stay in registers",
    "key_gradients": "two accumulators in registers, and the queries walked in steps that fit beside them",
    "query_gradients": "one accumulator in registers, and the keys walked in steps that fit beside it",
}
BYTES = "as many bytes in flight as fit with 3 programs a multiprocessor"


def decisions(plan: PolicyPlan) -> tuple[Decision, ...]:
    """Of the policy's dtype, for every target, and for the interpreter where that was measured."""
    measured = {(entry.kernel, entry.target): entry for entry in plan.tuned}
    tried = any(target == tiles.INTERPRETER.name for _, target in measured)
    return tuple(
        _decision(plan.policy, kernel, target, measured.get((kernel, target.name)))
        for kernel in choices.kernels(plan.policy)
        for target in (*tiles.TARGETS, *([tiles.INTERPRETER] if tried else []))
    )


def _decision(
    policy: CachePolicy, kernel: str, target: tiles.Target, entry: Entry | None
) -> Decision:
    choice = entry.choice if entry else choices.planned(policy, target.name, kernel)
    numbers = dict(zip(choices.NUMBERS[kernel], choice, strict=True))
    size = f"{numbers['rows']} rows by {numbers['keys']} keys"
    text = f"{size}, {numbers['warps']} warps, {_loads(numbers)}"
    if kernel == "decode":
        text += f", {_splits(policy, target, choice)}"
    return Decision(
        f"triton {kernel}, {target.name}",
        text,
        entry.why if entry else _why(policy, kernel, target, choice),
    )


def _loads(numbers: dict[str, int]) -> str:
    count = numbers["stages"]
    return f"{count} steps of loads in flight" if count > 1 else "loads not ahead of their use"


def _splits(policy: CachePolicy, target: tiles.Target, choice: choices.Choice) -> str:
    plan = tiles.decode_plan(policy, target, policy.dtype.bytes, choice)
    if plan.splits == 1:
        return "not split"
    return (
        f"{plan.splits} splits of {plan.split} keys{'' if tiles.most_seen(policy) else ' or more'}"
    )


def _why(policy: CachePolicy, kernel: str, target: tiles.Target, choice: choices.Choice) -> str:
    if kernel != "decode":
        return WHY[kernel]
    least = tiles.least_split(policy, target, choice[1])
    short = f"a split of less than {least} keys costs more than it saves"
    wave = f"2 programs for each of {target.multiprocessors} multiprocessors at batch 1"
    most = tiles.most_seen(policy)
    bound = short if most is not None and choice[4] == max(1, most // least) else wave
    loads = "no asynchronous copies worth a third buffer" if target.amd else BYTES
    return f"{loads}; {bound}"
