"""Kernels compiled for real targets, without a GPU: in processes of their own, since here they are interpreted."""

import json
import os
import subprocess
import sys

import pytest

from kvgen import audit, machine_code
from tests.contract.harness import policy_of

SOURCES = {
    "ring": "policy Ring { heads query 32 kv 8 dim 128 window 4096 sinks 4 storage ring slack 7 }",
    "training": "policy Train { heads query 32 kv 8 dim 128 window 4096 stateless }",
    "odd": "policy Odd { heads query 12 kv 4 dim key 96 value 80 chunk 512 storage ring slack 1 softcap 30 sink_logits }",
}


def audited(source: str, targets: str, tmp_path) -> tuple[int, dict]:
    """Exit status and report of `kvgen audit`."""
    file = tmp_path / "audited.kv"
    file.write_text(f"kvgen 1\n{SOURCES[source]}\n", encoding="utf-8")
    compiling = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = (
        sys.executable,
        "-m",
        "kvgen",
        "audit",
        file,
        "--target",
        targets,
        "--format",
        "json",
    )
    done = subprocess.run(command, env=compiling, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def beyond(report: dict) -> list[dict]:
    """Findings, but for the time it took: this machine may be busy."""
    return [one for one in report["findings"] if one["what"] != "seconds to compile"]


@pytest.mark.parametrize("source", ["ring", "training"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
def test_kernels_within_their_budget(source, target, tmp_path):
    _, report = audited(source, target, tmp_path)
    assert beyond(report) == []
    assert all(one["registers"] > 0 for one in report["figures"])
    window = next(one for one in report["figures"] if one["kernel"] == "window")
    wanted = {"sm_80": "HMMA", "sm_90": "HGMMA", "gfx942": "v_mfma"}
    assert window["matrix"] == wanted[target] and window["load_bytes"] == 16


@pytest.mark.slow
@pytest.mark.parametrize("source", list(SOURCES))
@pytest.mark.parametrize("target", ["sm_100", "sm_120", "gfx950"])
def test_every_kernel_compiles_for_the_other_targets(source, target, tmp_path):
    """In bfloat16, the default dtype, gradients included."""
    _, report = audited(source, target, tmp_path)
    assert all(one["spill_bytes"] == one["stack_bytes"] == 0 for one in report["figures"])
    assert all(one["shared_bytes"] <= one["shared_limit"] for one in report["figures"])
    assert len(report["figures"]) == {"ring": 6, "training": 4, "odd": 6}[source]


def test_padded_dims_chunks_caps_and_sink_logits_compile(tmp_path):
    _, report = audited("odd", "sm_90", tmp_path)
    assert all(one["spill_bytes"] == 0 for one in report["figures"])


def test_a_figure_over_budget_is_a_finding():
    budget = json.loads(audit.BUDGET.read_text(encoding="utf-8"))
    figures = audit.Figures(
        "P", "decode", "sm_90", 128, 8, 0, 70_000, 232_448, 16, "HMMA", 999, 1.0
    )
    policy = policy_of("heads query 8 kv 2 dim 128 dtype bf16 window 512 storage ring")
    found = {finding.what for finding in audit.over_budget(figures, policy, budget)}
    assert found == {"spill_bytes", "instructions in the main loop"}


def test_the_main_loop_is_the_shortest_one_with_matrix_instructions():
    lines = [
        (0, "MOV"),
        (16, "HMMA.16816"),
        (32, "LDGSTS.E.BYPASS.128 [R1]"),
        (48, "@P0 BRA 0x10"),
        (64, "BRA 0x0"),
    ]
    loop = machine_code.main_loop(
        lines, "sm", r"\bBRA.*?(0x[0-9a-f]+)", lambda place: int(place, 16)
    )
    assert loop == ["HMMA.16816", "LDGSTS.E.BYPASS.128 [R1]", "@P0 BRA 0x10"]


def test_an_interpreted_audit_is_refused(tmp_path):
    file = tmp_path / "audited.kv"
    file.write_text(f"kvgen 1\n{SOURCES['ring']}\n", encoding="utf-8")
    command = (sys.executable, "-m", "kvgen", "audit", file)
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "TRITON_INTERPRET" in done.stderr
