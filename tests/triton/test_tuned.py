"""`kvgen tune`: what it measures is what `compile` takes, and what no longer fits is said, not used."""

import json

import pytest
from click.testing import CliRunner

import kvgen
from kvgen import tune, tune_device, work_tune
from kvgen.backends import triton_choices as choices
from kvgen.cli import main
from kvgen.pipeline import check_text
from kvgen.tuned import meaning

POLICY = """kvgen 1
policy Local { heads query 8 kv 2 dim 128 window 1024 storage ring slack 7 }
policy Train from Local { stateless }
"""
LOCAL = "heads query 8 kv 2, dim 128, bf16, window 1024, storage ring slack 7"


class Fake:
    """A device on which some numbers are fast: so many microseconds away from `best` in each."""

    name, target, torch, triton = "Fake H100", "sm_90", "9.9", "3.8.0"
    best = {"keys": 32, "splits": 4, "warps": 8, "stages": 4}
    refused: tuple = ()

    def __init__(self):
        self.measured = []

    def microseconds(self, policy, kernel, choice):
        self.measured.append((policy.name, kernel, choice))
        if choice in self.refused:
            return None
        numbers = zip(choices.NUMBERS[kernel], choice, strict=True)
        return 10.0 + sum(abs(value - self.best.get(name, value)) for name, value in numbers)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.kv").write_text(POLICY)
    return tmp_path


@pytest.fixture
def device(monkeypatch):
    fake = Fake()
    monkeypatch.setattr(tune_device, "open_device", lambda name, program, rows: fake)
    return fake


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def plans_of(home, module="local_triton"):
    text = (home / "generated" / "a" / f"{module}.py").read_text()
    return text[text.index("PLANS") : text.index("@triton.jit")]


# -- from measuring to the emitted package


def test_what_was_measured_is_what_is_compiled(home, device):
    run("compile", "a.kv")
    planned = plans_of(home)
    done = run("tune", "a.kv")
    assert done.exit_code == 0, done.output
    assert "Local decode on Fake H100: keys 32 for 64" in done.stderr
    stale = run("compile", "a.kv", "--check")
    assert stale.exit_code == 1 and "tuned table changed" in stale.stderr
    assert run("compile", "a.kv").exit_code == 0
    changed = set(plans_of(home).splitlines()) - set(planned.splitlines())
    assert len(changed) == 2 and any(
        "keys=32, warps=8, stages=4, splits=4" in line for line in changed
    )
    assert run("compile", "a.kv", "--check").exit_code == 0


def test_a_plan_says_what_was_measured(home, device):
    run("tune", "a.kv")
    text = run("compile", "a.kv", "--emit", "plan").stdout
    assert "because measured on Fake H100 with triton 3.8.0: 10 us" in text
    assert text.count("measured on Fake H100") == 2 + 3  # kernels of the two policies
    assert "triton decode, sm_80" in text and "because as many bytes in flight" in text


def test_python_takes_the_table_too(home, device):
    before = kvgen.compile_file("a.kv").files["a/local_triton.py"]
    run("tune", "a.kv")
    assert kvgen.compile_file("a.kv").files["a/local_triton.py"] != before


def test_the_same_times_give_the_same_bytes(home, device):
    run("tune", "a.kv")
    first = (home / "a.tune.json").read_bytes()
    run("tune", "a.kv")
    assert (home / "a.tune.json").read_bytes() == first


def test_only_one_policy_and_the_other_entries_stay(home, device):
    run("tune", "a.kv")
    device.target, device.name = "gfx942", "Fake MI300X"
    device.measured.clear()
    assert run("tune", "a.kv", "--policy", "Local").exit_code == 0
    assert {name for name, *_ in device.measured} == {"Local"}
    policies = json.loads((home / "a.tune.json").read_text())["policies"]
    assert set(policies["Local"]["targets"]) == {"sm_90", "gfx942"}
    assert set(policies["Train"]["targets"]) == {"sm_90"}
    unknown = run("tune", "a.kv", "--policy", "Global")
    assert unknown.exit_code == 2 and "there is Local, Train" in unknown.stderr


def test_progress_names_what_is_tried(home, device, monkeypatch):
    told = []
    monkeypatch.setattr(work_tune, "tell", told.append)
    run("tune", "a.kv", "--policy", "Local")
    first = "Local decode sm_90: rows 64, keys 64, warps 4, stages 3, splits 8: 51 us"
    assert str(told[0]) == first
    assert len(told) == len(device.measured) == len(set(device.measured))


# -- the search


def test_a_choice_that_cannot_run_is_left_out(home, device):
    policy = check_text(POLICY, "a.kv").program.policy("Local")
    device.refused = tuple(
        choice
        for _, choice in choices.neighbours(
            policy, "sm_90", "decode", choices.planned(policy, "sm_90", "decode")
        )
    )
    entry = tune.tune(policy, device)[0]
    assert entry.choice == choices.planned(policy, "sm_90", "decode")
    assert entry.microseconds == entry.planned_microseconds


def test_a_gain_within_the_noise_changes_nothing(home, device):
    policy = check_text(POLICY, "a.kv").program.policy("Local")
    planned = choices.planned(policy, "sm_90", "window")
    device.microseconds = lambda policy, kernel, choice: 100.0 if choice == planned else 98.5
    assert tune.tune(policy, device)[1].choice == planned


def test_a_plan_that_cannot_run_is_a_problem(home, device):
    device.microseconds = lambda policy, kernel, choice: None
    done = run("tune", "a.kv")
    assert done.exit_code == 1 and "decode does not run on Fake H100" in done.stderr
    assert "kvgen audit" in done.stderr and not (home / "a.tune.json").exists()


def test_no_candidate_needs_more_than_a_target_has():
    policy = check_text(POLICY, "a.kv").program.policy("Local")
    for target, facts in choices.TARGETS.items():
        for kernel in choices.kernels(policy):
            planned = choices.planned(policy, target, kernel)
            tried = [choice for _, choice in choices.neighbours(policy, target, kernel, planned)]
            assert tried and planned not in tried and len(tried) == len(set(tried))
            for choice in (planned, *tried):
                assert choices.shared_bytes(policy, kernel, choice) <= facts.shared_bytes


def test_splits_of_any_number_cover_the_ring():
    policy = check_text(POLICY, "a.kv").program.policy("Local")
    target = choices.TARGETS["sm_90"]
    for splits in range(1, 65):
        plan = choices.tiles.decode_plan(policy, target, 2, (64, 64, 4, 3, splits))
        assert (plan.splits - 1) * plan.split < 1031 <= plan.splits * plan.split


# -- without a device


def test_without_a_gpu_it_says_what_is_missing(home, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = run("tune", "a.kv")
    assert done.exit_code == 2 and done.stdout == ""
    assert "NVIDIA or AMD GPU" in done.stderr and "the machine that will serve" in done.stderr


def test_standard_input_has_no_place_for_a_table(home, device):
    done = CliRunner().invoke(main, ["tune", "-"], input=POLICY)
    assert done.exit_code == 2 and "beside the policy file" in done.stderr


def test_the_interpreter_runs_what_is_chosen(monkeypatch):
    """The real device's code on a CPU: other numbers are other kernels, with the same answer; a wrong one cannot win."""
    text = "kvgen 1\npolicy Tried { heads query 2 kv 1 dim 16 dtype f32 window 40 storage ring slack 1 }\n"
    program = check_text(text, "tried.kv").program
    policy = program.policies[0]
    device = tune_device.open_device("cpu", program, rows=1)
    assert device.target == "interpreter" and "interpreter" in device.name
    planned = choices.planned(policy, "interpreter", "decode")
    assert device.microseconds(policy, "decode", planned) > 0
    assert device.microseconds(policy, "decode", (32, 16, 4, 1, 3)) > 0
    device._answers["Tried", "decode"] = tuple(x + 1 for x in device._answers["Tried", "decode"])
    assert device.microseconds(policy, "decode", planned) is None


# -- what no longer fits


def table(**changed):
    """A table with one entry for Local's decode, changed at the places of these names."""
    kernels = {
        "decode": {
            "choice": {"rows": 64, "keys": 32, "warps": 4, "stages": 3, "splits": 4},
            "microseconds": 3.4,
            "planned_microseconds": 3.6,
        }
    }
    versions = {"device": "Fake H100", "torch": "9.9", "triton": "3.8.0"}
    target = {**versions, "kernels": changed.get("kernels", kernels)}
    policy = {
        "meaning": changed.get("meaning", LOCAL),
        "targets": changed.get("targets", {changed.get("target", "sm_90"): target}),
    }
    policies = {changed.get("name", "Local"): policy}
    return json.dumps(
        {"kvgen_tune": 1, "codegen": changed.get("codegen", 1), "policies": policies}, indent=2
    )


def kernel(**numbers):
    choice = {"rows": 64, "keys": 32, "warps": 4, "stages": 3, "splits": 4, **numbers}
    return {"decode": {"choice": choice, "microseconds": 1, "planned_microseconds": 1}}


UNUSED = {
    "other window": (
        table(meaning=LOCAL.replace("1024", "512")),
        "6:7",
        f"the policy is now: {LOCAL}",
    ),
    "other templates": (table(codegen=0), "3:3", "measured with templates 0, these are 1"),
    "no such policy": (table(name="Global"), "5:5", "a.kv has no such policy"),
    "no such target": (table(target="sm_70"), "8:9", "kvgen plans for no such target"),
    "no such kernel": (table(kernels={"append": {}}), "13:13", "those are decode, window"),
    "a number missing": (table(kernels={"decode": {"choice": {}}}), "13:13", "it needs times"),
    "not a power of two": (table(kernels=kernel(keys=48)), "13:13", "a power of two"),
    "no number": (table(kernels=kernel(keys="many")), "13:13", "'many': 16 to 256"),
    "out of range": (table(kernels=kernel(splits=65)), "13:13", "splits 65: 1 to 64"),
    "too large": (
        table(kernels=kernel(keys=256, stages=8)),
        "13:13",
        "of shared memory, sm_90 has",
    ),
    "no targets": (table(targets=[]), "5:5", "it has no `targets`"),
    "half a target": (table(targets={"sm_90": {"device": "x"}}), "8:9", "are missing"),
}
UNREADABLE = {
    "cut off": (table()[:100], "no JSON"),
    "empty": ("", "no JSON"),
    "no bytes of JSON": ("\ufffd", "no JSON"),
    "a list": ("[]", "does not begin"),
    "another format": (table().replace('"kvgen_tune": 1', '"kvgen_tune": 2'), "does not begin"),
    "no policies": ('{"kvgen_tune": 1}', "has no `policies`"),
}


def test_the_table_of_these_tests_is_used(home):
    assert meaning(check_text(POLICY, "a.kv").program.policy("Local")) == LOCAL
    (home / "a.tune.json").write_text(table())
    done = run("compile", "a.kv", "--emit", "plan")
    assert done.stderr == "" and "measured on Fake H100" in done.stdout


@pytest.mark.parametrize("name", UNUSED)
def test_an_entry_that_does_not_fit_is_said_and_planned(name, home):
    text, place, why = UNUSED[name]
    planned = run("compile", "a.kv", "--emit", "code").stdout
    (home / "a.tune.json").write_text(text)
    done = run("compile", "a.kv", "--emit", "code")
    assert done.exit_code == 0 and done.stdout == planned
    assert f"a.tune.json:{place}" in done.stderr, done.stderr
    assert "warning[KV912]: a tuned entry that is not used" in done.stderr and why in done.stderr
    assert "= help: " in done.stderr and "planned anew" in done.stderr


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_table_that_cannot_be_read_is_said(name, home):
    text, why = UNREADABLE[name]
    (home / "a.tune.json").write_text(text)
    done = run("check", "a.kv")
    assert done.exit_code == 0
    assert "warning[KV911]" in done.stderr and why in done.stderr and "kvgen tune" in done.stderr


@pytest.mark.parametrize("code", ["KV911", "KV912"])
def test_the_codes_are_explained(code):
    page = run("explain", code).stdout
    assert page.startswith(f"{code}: ") or f"{code}" in page.split("\n")[0]
    assert "tune.json" in page and "warning" in page
