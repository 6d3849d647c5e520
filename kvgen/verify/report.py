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
class Report:
    policies: tuple[PolicyReport, ...]

    @property
    def holds(self) -> bool:
        return all(policy.holds for policy in self.policies)


def text(report: Report) -> str:
    return "\n".join("\n".join(_policy(policy)) + "\n" for policy in report.policies)


def _policy(report: PolicyReport) -> Iterator[str]:
    verdict = "holds" if report.holds else "DOES NOT HOLD"
    yield f"policy {report.name}  {report.place}: {verdict}"
    yield "  proved, for rows of any length"
    for fact in report.facts:
        yield f"    {'ok   ' if fact.holds else 'WRONG'} {fact.claim}"
        yield f"          {fact.because}"
    for backend in dict.fromkeys(test.backend for test in report.tests):
        yield f"  tested, the {backend} backend of the emitted code"
        yield from _tests(test for test in report.tests if test.backend == backend)
    if report.untested:
        yield "  not tested"
        yield from (f"          {words}" for words in report.untested)


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
    return json.dumps({"holds": report.holds, "policies": policies}, indent=2) + "\n"
