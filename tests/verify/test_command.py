"""`kvgen verify`: the report, its formats, its exit status."""

import json
import subprocess
import sys

import pytest

from kvgen.verify import subject, trial, verify
from kvgen.verify.report import Report, as_json, text
from tests.verify.conftest import ROOT, program_of
from tests.verify.faults import FAULTS, RING


def kvgen(*arguments, stdin: str = ""):
    command = [sys.executable, "-m", "kvgen", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, input=stdin)


POLICY = f"kvgen 1\npolicy Mine {{ heads query 2 kv 1 dim 4 {RING} }}\n"


def test_text_and_status():
    found = kvgen(
        "verify", "-", "--name", "mine", "--backend", "torch", "--seconds", "0.5", stdin=POLICY
    )
    assert found.returncode == 0, found.stderr
    assert "policy Mine  mine.kv:3: holds" in found.stdout
    assert "proved, for rows of any length" in found.stdout and "not tested" in found.stdout
    assert found.stderr.count("\r") == 0  # no bar where there is no terminal


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_no_time(seconds):
    found = kvgen("verify", "-", "--seconds", seconds, stdin=POLICY)
    assert found.returncode == 2 and "give a number above 0" in found.stderr


def test_json():
    found = kvgen(
        "verify", "-", "--backend", "torch", "--seconds", "0.5", "--format", "json", stdin=POLICY
    )
    report = json.loads(found.stdout)
    assert report["holds"] is True
    (policy,) = report["policies"]
    assert policy["name"] == "Mine" and all(fact["holds"] for fact in policy["facts"])
    assert {test["backend"] for test in policy["tests"]} == {"torch"}


def test_a_wrong_policy_and_a_wrong_backend():
    assert kvgen("verify", "-", stdin="kvgen 1\npolicy P { dim 8 }\n").returncode == 1
    assert kvgen("verify", "-", "--backend", "tpu", stdin=POLICY).returncode == 2


def test_a_counterexample_is_printed(seed_fault, monkeypatch):
    monkeypatch.setattr(trial, "SHRINKING", 5.0)
    seed_fault(FAULTS[0])
    report = verify(program_of(RING), ("torch",), seconds=10)
    assert not report.holds
    printed = text(report)
    assert "DOES NOT HOLD" in printed and "| cache = Cache(" in printed
    assert json.loads(as_json(report))["holds"] is False


def test_progress_goes_from_nothing_to_all():
    told = []
    report = verify(
        program_of(RING),
        ("torch",),
        seconds=1.0,
        tell=lambda words, done: told.append((words, done)),
    )
    assert isinstance(report, Report) and report.holds
    shares = [done for _, done in told]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1
    assert any("every short sequence" in words for words, _ in told)


def test_a_backend_that_cannot_run_is_said(monkeypatch):
    made = subject.small

    def without_compiler(policy, backend):
        if backend == "cpu":
            raise ImportError("no compiler")
        return made(policy, backend)

    monkeypatch.setattr(subject, "small", without_compiler)
    (policy,) = verify(program_of(RING), ("torch", "cpu"), seconds=0.3).policies
    assert {test.backend for test in policy.tests} == {"torch"}
    assert "cpu: no compiler" in policy.untested
