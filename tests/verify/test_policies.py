"""Every policy of the repository holds, and 200 random ones."""

import random

import pytest

from kvgen.pipeline import check_text
from kvgen.verify import verify_policy
from kvgen.verify.clock import Clock, OutOfTime
from kvgen.verify.facts import facts_of
from kvgen.verify.search import Random
from kvgen.verify.subject import small
from tests.contract.harness import FULL
from tests.contract.policies import random_clauses
from tests.verify.conftest import ROOT

SECONDS = 20 if FULL else 0.4
EVERY = 5  # of the random ones the emitted code of every fifth is run, and by the slow test that of the others
PROGRAMS = [
    check_text(path.read_text(), path.name).program
    for path in sorted((ROOT / "policies").glob("*.kv"))
]
POLICIES = [(program, policy) for program in PROGRAMS for policy in program.policies]


@pytest.mark.parametrize(
    ("program", "policy"),
    POLICIES,
    ids=lambda value: getattr(value, "name", value.__class__.__name__),
)
def test_the_repositorys_own(program, policy):
    report = verify_policy(program, policy, ("torch",), SECONDS)
    assert report.holds, report
    assert report.tests and all(test.sequences for test in report.tests)


def policy_of(number: int):
    clauses = random_clauses(random.Random(f"verify {number}"))
    checked = check_text(f"kvgen 1\npolicy Random {{ {clauses} }}\n", "random.kv")
    assert checked.program is not None, checked.diagnostics
    return checked.program.policies[0]


@pytest.mark.parametrize("first", range(0, 200, 10))
def test_random_ones(first):
    for number in range(first, first + 10):
        policy = policy_of(number)
        found = facts_of(policy)
        assert all(fact.holds for fact in found), found
        if number % EVERY == 0:
            run(policy, number)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 10))
def test_the_emitted_code_of_the_other_random_ones(first):
    for number in range(first, first + 10):
        if number % EVERY:
            run(policy_of(number), number)


def run(policy, seed: int) -> None:
    search = Random(small(policy, "torch"), Clock(SECONDS), 12, seed)
    try:
        search.run(100)
    except OutOfTime:
        assert search.sequences
