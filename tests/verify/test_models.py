"""A model's layers together: all models of the repository hold, and faults of the model's object are found."""

import contextlib
from functools import partial

import pytest

from kvgen.pipeline import check_text
from kvgen.verify import forwards, stateless, verify_model
from kvgen.verify.calls import (
    Decode,
    Extract,
    Finalize,
    Merge,
    Prepare,
    Reload,
    Reset,
    Rows,
    Trim,
    Window,
)
from kvgen.verify.clock import Clock, OutOfTime
from kvgen.verify.replay import replay, script
from kvgen.verify.report import Report, text
from kvgen.verify.search import Failure, Random, Walk, shrunk
from kvgen.verify.stateless import ForwardFailure
from kvgen.verify.together import together
from tests.verify.faults import Fault
from tests.verify.test_policies import PROGRAMS

MODELS = [(program, model) for program in PROGRAMS for model in program.models]
MODEL = "package/_models.py.jinja"

# Two kinds of ring, one that has a bypass, one that grows; layers that read a donor's keys.
TEXT = """\
kvgen 1

policy Draft {
    heads    query 4 kv 2
    dim      4
    dtype    f32
    window   3
    storage  ring slack 2
    padding  left right
    trim     guarded bypass 2
}

policy Plain from Draft {
    storage  ring slack 1
    trim     guarded
}

policy Whole from Plain {
    window   full
    storage  contiguous
}

model Net {
    layers   6
    repeat   Draft, Plain, Whole
    share    4 from 1
    share    5 from 2
}
"""

TRAINED = """\
kvgen 1

policy Near {
    heads    query 4 kv 2
    dim      4
    dtype    f32
    window   3
    stateless
    padding  right
}

policy Far from Near {
    window   full
}

model Trained {
    layers   4
    repeat   Near, Far
    share    3 from 1
}
"""

W, D = Window(9), Decode()
RAGGED = (D, Trim((0, 1)))  # two rows, of one token and of none
# (the fault, calls that show it); the search finds the first three soonest.
FAULTS = [
    (Fault("a sharing layer has a cache of its own", MODEL, "            if layer in self.DONORS:", "            if layer in ():"), (D,)),
    (Fault("a prefill is not ended everywhere", MODEL, "            cache.finalize_prefill()", "            cache.finalize_prefill() if cache is self.layers[0] else None"), (Prepare((2, 1), (0, 0)), Window(1), Finalize())),
    (Fault("merged the wrong way round", MODEL, "zip(*(model._caches for model in models))", "zip(*(model._caches for model in reversed(models)))"), (D, Merge())),
    (Fault("a trim is not asked of all", MODEL, "            cache._check_trim(n, bypass and cache.bypass_tokens > 0)\n", "            cache\n"), (W, Trim(3))),
    (Fault("trimmable if any layer is", MODEL, "return all(cache.is_trimmable(n)", "return any(cache.is_trimmable(n)"), (W, D)),
    (Fault("bypass also where none is declared", MODEL, "cache.trim(n, bypass and cache.bypass_tokens > 0)", "cache.trim(n, bypass)"), (W, Trim(1, bypass=True))),
    (Fault("rows of the first layer only", MODEL, "        for cache in self._caches:\n            cache.filter_rows(rows)", "        self.layers[0].filter_rows(rows)"), (*RAGGED, Rows((1, 0)))),
    (Fault("reset forgets a layer", MODEL, "        for cache in self._caches:\n            cache.reset()", "        for cache in self._caches[1:]:\n            cache.reset()"), (D, Reset())),
    (Fault("the wrong row extracted", MODEL, "[cache.extract_row(row) for cache in self._caches]", "[cache.extract_row(0) for cache in self._caches]"), (*RAGGED, Extract(1))),
    (Fault("state of one layer loaded into all", MODEL, "self.layers[layer]._adopt(parts[layer], new)", "self.layers[layer]._adopt(parts[self._owners[-1]], checked[-1])"), (W, Reload())),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "model"), MODELS, ids=lambda value: getattr(value, "name", value.__class__.__name__)
)
def test_the_repositorys_own(program, model):
    report = verify_model(program, model, ("torch",), 1.0)
    assert report.holds, text(Report((), (report,)))
    assert report.tests and all(test.sequences for test in report.tests)


def program_of(text):
    program = check_text(text, "net.kv").program
    assert program is not None
    return program


def net(text=TEXT):
    program = program_of(text)
    subject = together(program, program.models[0], "torch")
    assert subject is not None
    return subject


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        pytest.param(TEXT, "cpu"),
        pytest.param(TEXT, "triton", marks=pytest.mark.slow),  # a minute, interpreted
        pytest.param(TRAINED, "cpu"),
        pytest.param(TRAINED, "triton"),
    ],
    ids=["stored cpu", "stored triton", "stateless cpu", "stateless triton"],
)
def test_every_backend_holds(text, backend):
    program = program_of(text)
    report = verify_model(program, program.models[0], (backend,), 1.0)
    assert report.holds, report
    assert {test.backend for test in report.tests} == {backend}


def test_the_small_model_is_like_the_declared_one():
    subject = net()
    assert [policy.name for policy in subject.layers] == [
        "Draft", "Plain", "Whole", "Draft", "Plain", "Whole",
    ]  # fmt: skip
    assert subject.donors == (0, 1, 2, 3, 1, 2)
    assert subject.policy.name == "Draft", "the one with the most edges"


def test_it_holds():
    with contextlib.suppress(OutOfTime):
        Random(net(), Clock(4.0), 24).run(20)
    with contextlib.suppress(OutOfTime):
        Walk(net(), Clock(4.0)).deeper(2)


@pytest.mark.parametrize(("fault", "calls"), FAULTS, ids=lambda one: getattr(one, "name", ""))
def test_a_fault_shows(fault, calls, seed_fault):
    replay(net().text, "Net", "torch", 2, calls)
    seed_fault(fault)
    with pytest.raises(AssertionError, match=r"layer \d: |of the model: |raises|must be refused"):
        replay(net().text, "Net", "torch", 2, calls)


@pytest.mark.parametrize(("fault", "_"), FAULTS[:3], ids=lambda one: getattr(one, "name", ""))
def test_the_search_finds_it_and_a_script_shows_it(fault, _, seed_fault, monkeypatch):
    with monkeypatch.context():
        seed_fault(fault)
        with pytest.raises(Failure) as found:
            Random(net(), Clock(120.0), 24).run(1000)
        failure = shrunk(found.value, 20)
        assert len(failure.calls) <= 6
        shown = script(failure, "model Net")
        with pytest.raises(AssertionError):
            exec(compile(shown, "counterexample.py", "exec"), {})
    monkeypatch.undo()
    exec(compile(shown, "counterexample.py", "exec"), {})


# -- stateless layers

FORWARD_FAULTS = [
    Fault("each layer has masks of its own", MODEL, "            masks = cache.masks\n", ""),
    Fault("the first layer alone is told the lengths", MODEL, "row_lengths if kind.STATELESS else", "row_lengths if layer == 0 else"),
    Fault("a mask is built for every layer", "package/_masks.py.jinja", "if key not in self._made", "if True"),
]  # fmt: skip


def forwards_of(subject):
    checked = partial(forwards.check, subject)
    return stateless.check_all(checked, stateless.every_forward(subject.policy), Clock(60.0))


@pytest.mark.parametrize("fault", FORWARD_FAULTS, ids=lambda one: one.name)
def test_a_fault_of_a_stateless_model_is_found_and_a_script_shows_it(
    fault, seed_fault, monkeypatch
):
    with monkeypatch.context():
        seed_fault(fault)
        with pytest.raises(ForwardFailure) as found:
            forwards_of(net(TRAINED))
        shown = forwards.script(found.value, "model Trained")
        with pytest.raises(ForwardFailure):
            exec(compile(shown, "counterexample.py", "exec"), {})
    monkeypatch.undo()
    exec(compile(shown, "counterexample.py", "exec"), {})


def test_a_model_of_both_kinds_says_what_was_not_tested():
    mixed = TRAINED.replace("    stateless\n", "", 1).replace("window   full", "stateless")
    program = program_of(mixed)
    report = verify_model(program, program.models[0], ("torch",), 1.0)
    assert report.tests == () and "some are stateless" in report.untested[0]


def test_a_model_of_more_layers_than_can_be_laid_out():
    most = 2**63 - 1
    layers = f"layers   {most}\n    repeat   Draft * {most}, Plain, Whole"
    text = TEXT[: TEXT.index("    layers   6")] + f"    {layers}\n}}\n"
    assert [policy.name for policy in net(text).layers] == ["Draft", "Draft"]
