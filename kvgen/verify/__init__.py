"""`kvgen verify`: what can be proved about a policy is proved, the rest is tested on the emitted code, on this machine.

The judge is `reference`, which executes the contract with the rules of `kvgen.model`. A policy is looked at twice: made small,
where every short sequence of calls is walked through, and at true size, by random sequences and against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kvgen.backends import BACKENDS
from kvgen.ir import CachePolicy, Model, Program
from kvgen.verify.facts import facts_of
from kvgen.verify.report import ModelReport, PolicyReport, Report, Tested

if TYPE_CHECKING:
    from kvgen.verify.together import Together

Tell = Callable[[str, float], None]  # what is being done, and the share of all that is done
SECONDS = 20.0  # for a policy, all backends together

__all__ = [
    "ModelReport",
    "PolicyReport",
    "Report",
    "Tested",
    "verify",
    "verify_model",
    "verify_policy",
]


def verify(
    program: Program,
    backends: tuple[str, ...] | None = None,
    seconds: float = SECONDS,
    tell: Tell | None = None,
    seed: int = 0,
) -> Report:
    """`backends` None: all that run here. `seconds` for each policy and model; a step that has begun is finished."""
    parts = len(program.policies) + len(program.models)
    policies = tuple(
        verify_policy(program, one, backends, seconds, _part(tell, i / parts, 1 / parts), seed)
        for i, one in enumerate(program.policies)
    )
    models = tuple(
        verify_model(program, one, backends, seconds, _part(tell, i / parts, 1 / parts), seed)
        for i, one in enumerate(program.models, len(policies))
    )
    return Report(policies, models)


def verify_policy(
    program: Program,
    policy: CachePolicy,
    backends: tuple[str, ...] | None,
    seconds: float,
    tell: Tell | None = None,
    seed: int = 0,
) -> PolicyReport:
    from kvgen.verify.trial import Trial

    runnable, missing = _runnable(policy, backends)
    tests: list[Tested] = []
    for number, backend in enumerate(runnable):
        share = _part(tell, number / len(runnable), 1 / len(runnable))
        name = f"policy {policy.name} of {program.stem}.kv"
        tests += Trial(policy, backend, name, seconds / len(runnable), share, seed).tests()
    untested = (*missing, *_never_tested(policy))
    place = f"{program.stem}.kv:{policy.line}"
    return PolicyReport(policy.name, place, facts_of(policy), tuple(tests), untested)


def verify_model(
    program: Program,
    model: Model,
    backends: tuple[str, ...] | None,
    seconds: float,
    tell: Tell | None = None,
    seed: int = 0,
) -> ModelReport:
    """Its layers together: one object acts on all, layers share a donor's keys, and masks."""
    from kvgen.verify.together import together
    from kvgen.verify.trial import ModelTrial

    place = f"{program.stem}.kv:{model.line}"
    runnable, missing = _runnable(program.policy(model.repeat[0].policy), backends)
    tests: list[Tested] = []
    subject = None
    for number, backend in enumerate(runnable):
        subject = together(program, model, backend)
        if subject is None:
            why = (
                "its layers together: some are stateless and some are not, and no call is for both"
            )
            return ModelReport(model.name, place, (), (why, *missing))
        share = _part(tell, number / len(runnable), 1 / len(runnable))
        tests += ModelTrial(subject, seconds / len(runnable), share, seed).tests()
    return ModelReport(
        model.name, place, tuple(tests), (*missing, *_layers_left_out(model, subject))
    )


def _layers_left_out(model: Model, subject: Together | None) -> Iterator[str]:
    tested = 0 if subject is None else len(subject.layers)
    if tested < model.layers:
        yield f"more than {tested} of its {model.layers:,} layers at once"


def _runnable(policy: CachePolicy, asked: tuple[str, ...] | None) -> tuple[list[str], list[str]]:
    """(backends that run here, why the others do not)."""
    from kvgen.verify.subject import small

    found: list[str] = []
    missing: list[str] = []
    for backend in asked or BACKENDS:
        try:
            small(policy, backend).new_cache(1)
            found.append(backend)
        except ImportError as error:
            missing.append(f"{backend}: {error}")
    return found, missing


def _never_tested(policy: CachePolicy) -> Iterator[str]:
    yield "other machines and devices than this one's"
    if policy.heads.kv > 2 or policy.heads.group > 4:
        yield "all heads at once: a few were, and heads do not know of each other"


def _part(tell: Tell | None, start: float, share: float) -> Tell | None:
    if tell is None:
        return None
    return lambda what, done: tell(what, start + share * done)
