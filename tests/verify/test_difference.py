"""`kvgen diff`: what is said of a change is what the executable specification says."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from kvgen import model
from kvgen.difference import difference, text
from kvgen.ir import Retention
from kvgen.pipeline import check_text
from tests.verify.conftest import ROOT, SHAPE


def program(body: str):
    checked = check_text(f"kvgen 1\n{body}", "changed.kv")
    assert checked.program is not None, checked.diagnostics
    return checked.program


def changes(old: str, new: str) -> dict:
    sections = difference(*(program(f"policy P {{ {SHAPE} {clauses} }}") for clauses in (old, new)))
    return {change.topic: change for section in sections for change in section.changes}


LIMITS = [
    Retention(window, sinks, chunk)
    for window, sinks, chunk in itertools.product((None, 1, 3, 5, 8), (0, 1, 6), (None, 2, 4, 7))
    if not (sinks and chunk) and not (sinks and window is None)
]


def clause(retention: Retention) -> str:
    words = [f"window {retention.window_tokens or 'full'} storage contiguous"]
    words += [f"sinks {retention.sink_tokens}"] * bool(retention.sink_tokens)
    words += [f"chunk {retention.chunk_tokens}"] * bool(retention.chunk_tokens)
    return " ".join(words)


@pytest.mark.parametrize("old", LIMITS, ids=clause)
def test_what_is_seen(old):
    """The first query that sees something else, and whether it is more or less, against all queries up to 80."""
    for new in LIMITS:
        found = changes(clause(old), clause(new)).get("seen")
        sights = [
            tuple({k for k in range(p + 1) if model.visible(r, p, k)} for r in (old, new))
            for p in range(80)
        ]
        differing = [p for p, (before, after) in enumerate(sights) if before != after]
        if not differing:
            assert found is None, (old, new)
            continue
        gained = any(after - before for before, after in sights)
        lost = any(before - after for before, after in sights)
        trend = ("some tokens are seen that were not, and some no more" if gained and lost
                 else "all that was seen, and more" if gained else "less than was seen")  # fmt: skip
        assert found.note == f"from query {differing[0]:,} on: {trend}", (old, new)


def test_a_larger_window():
    found = changes("window 512 storage ring slack 7", "window 1024 storage ring slack 3")
    assert (found["bytes"].old, found["bytes"].new) == ("16,608 a row", "32,864 a row")
    assert found["rollback"].note == "rollbacks that were allowed are refused"
    assert "refused by the new one: other limits and slots" in found["saved files"].note


def test_the_same_in_other_words():
    assert not changes("window 512 storage ring slack 0 trim guarded", "window 512")
    assert not changes("", "window full storage contiguous padding none")


def test_what_does_not_touch_the_bytes_leaves_saved_files():
    found = changes("window 8 padding left", "window 8 padding right softcap 2")
    assert set(found) == {"padding", "scores"}
    assert found["padding"].note == "batches padded as before are refused"


def test_policies_and_models_come_and_go():
    policy = f"policy {{}} {{{{ {SHAPE} {{}} }}}}\n"
    old = (
        policy.format("A", "") + policy.format("B", "window 4") + "model M { layers 4 repeat A, B }"
    )
    new = (
        policy.format("A", "")
        + policy.format("C", "window 8")
        + "model M { layers 6 repeat A, C share 5 from 3 }"
    )
    found = text(difference(program(old), program(new)))
    assert "policy C  changed.kv:" in found and "policy B" in found
    assert "gone, and its class with it" in found
    assert "4 -> 6" in found and "layer 1 B -> C" in found


def test_command(tmp_path):
    def kvgen(*arguments):
        command = [sys.executable, "-m", "kvgen", "diff", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    mine = tmp_path / "gemma3.kv"
    mine.write_text(
        (ROOT / "policies/gemma3.kv").read_text().replace("window   512", "window   1k")
    )
    same = kvgen("policies/gemma3.kv", "policies/gemma3.kv")
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "they mean the same\n")
    found = kvgen("policies/gemma3.kv", mine)
    assert found.returncode == 1 and "window 512 -> window 1,024" in found.stdout
    assert json.loads(kvgen("policies/gemma3.kv", mine, "--format", "json").stdout)[0]["changes"]
    assert kvgen("policies", mine).returncode == 2


@pytest.mark.parametrize("layers", [5, 11, 12, 13, 26])
def test_layers_with_another_policy_are_counted_as_if_one_by_one(layers):
    old, new = (
        program(
            f"policy A {{ {SHAPE} }} policy B {{ {SHAPE} window 3 }} model M {{ layers {n} repeat {repeat} }}"
        )
        for n, repeat in ((layers, "A * 3, B"), (layers + 1, "B, A * 2"))
    )
    before, after = old.models[0], new.models[0]
    moved = [i for i in range(layers) if before.policy_of(i) != after.policy_of(i)]
    section = difference(old, new)[-1]
    policies = next(change for change in section.changes if change.topic == "policies")
    assert policies.old == f"layer {moved[0]} {before.policy_of(moved[0])}"
    assert policies.note == f"{len(moved)} layers have another policy"
    for declared in (before, after):
        each = [declared.policy_of(i) for i in range(declared.layers)]
        assert all(declared.count(name) == each.count(name) for name in "AB")


def test_a_model_of_more_layers_than_can_be_counted():
    most = 2**63 - 1
    old, new = (
        program(
            f"policy A {{ {SHAPE} }} policy B {{ {SHAPE} window 3 }} model M {{ layers {most} repeat A * {n}, B * {most} }}"
        )
        for n in (3, 4)
    )
    section = difference(old, new)[-1]
    assert "1 layers or more have another policy" in {change.note for change in section.changes}
