"""What a verification found: proved, tested, not tested. As text, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from kvgen.verify.facts import Fact


@dataclass(frozen=True, slots=True)
class Tested:
    """`count`: how much was tried, in words. `counterexample`: a script, where something was wrong."""

    backend: str
    size: str
    count: str
    sequences: int
    complete: bool
    wrong: str = ""
    counterexample: str = ""


@dataclass(frozen=True, slots=True)
class PolicyReport:
    name: str
    place: str
    facts: tuple[Fact, ...]
    tests: tuple[Tested, ...]
    untested: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return all(fact.holds for fact in self.facts) and not any(test.wrong for test in self.tests)


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Of its layers together: nothing is proved there beyond what is proved of its policies."""

    name: str
    place: str
    tests: tuple[Tested, ...]
    untested: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not any(test.wrong for test in self.tests)


@dataclass(frozen=True, slots=True)
class Report:
    policies: tuple[PolicyReport, ...]
    models: tuple[ModelReport, ...] = ()

    @property
    def holds(self) -> bool:
        return all(part.holds for part in (*self.policies, *self.models))


def text(report: Report) -> str:
    parts = [*map(_policy, report.policies), *map(_model, report.models)]
    return "\n".join("\n".join(part) + "\n" for part in parts)


def _model(report: ModelReport) -> Iterator[str]:
    yield f"model {report.name}  {report.place}: {_verdict(report.holds)}"
    yield from _tested(report.tests, "all layers, ")
    yield from _not_tested(report.untested)


def _verdict(holds: bool) -> str:
    return "holds" if holds else "DOES NOT HOLD"


def _policy(report: PolicyReport) -> Iterator[str]:
    yield f"policy {report.name}  {report.place}: {_verdict(report.holds)}"
    yield "  proved, for rows of any length"
    for fact in report.facts:
        yield f"    {'ok   ' if fact.holds else 'WRONG'} {fact.claim}"
        yield f"          {fact.because}"
    yield from _tested(report.tests, "")
    yield from _not_tested(report.untested)


def _tested(tests: tuple[Tested, ...], what: str) -> Iterator[str]:
    for backend in dict.fromkeys(test.backend for test in tests):
        yield f"  tested, {what}the {backend} backend of the emitted code"
        yield from _tests(test for test in tests if test.backend == backend)


def _not_tested(untested: tuple[str, ...]) -> Iterator[str]:
    if untested:
        yield "  not tested"
        yield from (f"          {words}" for words in untested)


def _tests(tests: Iterator[Tested]) -> Iterator[str]:
    for test in tests:
        mark = "WRONG" if test.wrong else "ok   "
        yield f"    {mark} {test.count}"
        yield f"          {test.size}"
        if test.wrong:
            yield f"          {test.wrong}"
            yield ""
            yield from (f"        | {line}".rstrip() for line in test.counterexample.splitlines())
            yield ""


def as_json(report: Report) -> str:
    policies = [{**asdict(policy), "holds": policy.holds} for policy in report.policies]
    models = [{**asdict(model), "holds": model.holds} for model in report.models]
    whole = {"holds": report.holds, "policies": policies, "models": models}
    return json.dumps(whole, indent=2) + "\n"
