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
    """Of the policy's dtype, for every target, those alike together, and for the interpreter where that was measured."""
    measured = {(entry.kernel, entry.target): entry for entry in plan.tuned}
    tried = any(target == tiles.INTERPRETER.name for _, target in measured)
    targets = (*tiles.TARGETS, *([tiles.INTERPRETER] if tried else []))
    alike: dict[tuple[str, str, str], list[str]] = {}
    for kernel in choices.kernels(plan.policy):
        for target in targets:
            chosen = _chosen(plan.policy, kernel, target, measured.get((kernel, target.name)))
            alike.setdefault((kernel, *chosen), []).append(target.name)
    return tuple(
        Decision(f"triton {kernel}, {' '.join(names)}", choice, why)
        for (kernel, choice, why), names in alike.items()
    )


def _chosen(
    policy: CachePolicy, kernel: str, target: tiles.Target, entry: Entry | None
) -> tuple[str, str]:
    """The numbers of a kernel for a target, and why."""
    choice = entry.choice if entry else choices.planned(policy, target.name, kernel)
    numbers = dict(zip(choices.NUMBERS[kernel], choice, strict=True))
    size = f"{numbers['rows']} rows by {numbers['keys']} keys"
    text = f"{size}, {numbers['warps']} warps, {_loads(numbers)}"
    if kernel == "decode":
        text += f", {_splits(policy, target, choice)}"
    return text, entry.why if entry else _why(policy, kernel, target, choice)


def _loads(numbers: dict[str, int]) -> str:
    ahead, masked = numbers["stages"], numbers.get("edge_stages", numbers["stages"])
    text = f"{ahead} steps of loads in flight" if ahead > 1 else "loads not ahead of their use"
    return text if masked == ahead else f"{text}, {masked} where masked"


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
    if choice[4] == tiles.MOST_SPLITS:
        wave = f"{tiles.MOST_SPLITS} splits are what `merge` joins at once"
    bound = short if most is not None and choice[4] == max(1, most // least) else wave
    loads = "AMD has no asynchronous copies worth a third buffer" if target.amd else BYTES
    return f"{loads}; {bound}"
