"""Every seeded fault is found, and shown by a short script that fails with the fault and not without it."""

import contextlib
import io
from functools import partial

import pytest

from kvgen.ir import Stateless
from kvgen.verify import stateless
from kvgen.verify.clock import Clock, OutOfTime
from kvgen.verify.script import script
from kvgen.verify.search import Failure, Random, Walk, shrunk
from kvgen.verify.subject import small
from tests.verify.conftest import program_of
from tests.verify.faults import FAULTS

SCRIPTED = 7  # every so many faults are made short and their scripts run


def test_there_are_enough():
    assert len(FAULTS) >= 30 and len({fault.name for fault in FAULTS}) == len(FAULTS)


def found(clauses: str, seconds: float = 300.0):
    """The failure that a search as `kvgen verify` makes comes to first."""
    policy = program_of(clauses).policies[0]
    subject = small(policy, "torch")
    try:
        if isinstance(policy.storage, Stateless):
            checked = partial(stateless.check, subject)
            stateless.check_all(checked, stateless.every_forward(policy), Clock(seconds))
        else:
            Walk(subject, Clock(seconds)).deeper(1)
            Random(subject, Clock(seconds), 24).run(100)
            Walk(subject, Clock(seconds)).deeper(3)
    except (Failure, stateless.ForwardFailure) as failure:
        return failure
    except OutOfTime:
        return None
    return None


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault.name for fault in FAULTS])
def test_found(number, seed_fault):
    fault = FAULTS[number]
    seed_fault(fault)
    failure = found(fault.clauses)
    assert failure is not None, "not found"
    if number % SCRIPTED == 0 and isinstance(failure, Failure):
        short = shrunk(failure, 20)
        assert len(short.calls) <= 6
        text = script(short, "Tested")
        assert len(text.splitlines()) <= 70
        assert fails(text), text


def fails(text: str) -> bool:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(compile(text, "counterexample.py", "exec"), {})
        except Exception:  # noqa: BLE001  a fault may raise anything
            return True
    return False


@pytest.mark.parametrize("number", range(0, len(FAULTS), SCRIPTED))
def test_the_script_passes_without_the_fault(number, seed_fault, monkeypatch):
    fault = FAULTS[number]
    with monkeypatch.context():
        seed_fault(fault)
        failure = found(fault.clauses)
    monkeypatch.undo()
    if isinstance(failure, Failure):
        assert not fails(script(failure, "Tested"))
