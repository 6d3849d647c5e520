"""`kvgen compile --tests`: a test file that goes with a package, under any name, needs nothing of kvgen, and finds faults."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.verify.conftest import ROOT, SHAPE

POLICIES = f"""kvgen 1
policy Ring {{ {SHAPE} window 9 storage ring slack 3 padding left right trim guarded bypass 2 }}
policy Sinks {{ {SHAPE} window 8 sinks 2 sink_logits softcap 5 padding right }}
policy Runs {{ {SHAPE} chunk 6 storage ring trim off padding left }}
policy Growing {{ heads query 2 kv 1 dim 4 scale 0.3 dtype bf16 }}
policy Few {{ {SHAPE} storage fixed 20 }}
policy Open {{ {SHAPE} window 5 storage fixed }}
policy Training {{ {SHAPE} window 5 sink_logits stateless padding right }}
"""


@pytest.fixture(scope="module")
def vendored(tmp_path_factory) -> Path:
    """The package, copied under another name into a folder of its own."""
    folder = tmp_path_factory.mktemp("vendored")
    (folder / "mine.kv").write_text(POLICIES)
    command = [
        sys.executable,
        "-m",
        "kvgen",
        "compile",
        "mine.kv",
        "--tests",
        "--backend",
        "torch",
        "-o",
        "out",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)
    shutil.copytree(folder / "out" / "mine", folder / "repository" / "caches")
    return folder / "repository"


def run(folder: Path, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "caches"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_needs_nothing_of_kvgen(vendored):
    tree = ast.parse((vendored / "caches" / "test_mine.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert imported == {"__future__", "dataclasses", "typing", "pytest", "torch", None}


def test_passes(vendored):
    found = run(vendored, "--import-mode=importlib")
    assert found.returncode == 0, found.stdout
    assert "27 passed" in found.stdout and "skipped" not in found.stdout


def test_finds_a_fault(vendored, tmp_path):
    faulty = tmp_path / "repository"
    shutil.copytree(vendored, faulty)
    module = faulty / "caches" / "ring_policy.py"
    module.write_text(module.read_text().replace("q - k < WINDOW", "q - k <= WINDOW"))
    found = run(faulty, "--import-mode=prepend")
    assert found.returncode == 1 and "RingCache" in found.stdout


def test_is_formatted(vendored):
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "--check",
            "--line-length",
            "100",
            vendored / "caches" / "test_mine.py",
        ],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


def test_is_part_of_the_output_folder(vendored):
    """`--check` with and without it: a file that was asked for is no orphan."""
    folder = vendored.parent
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def check(*options: str) -> subprocess.CompletedProcess:
        command = [
            sys.executable,
            "-m",
            "kvgen",
            "compile",
            "mine.kv",
            "--check",
            "--backend",
            "torch",
            "-o",
            "out",
        ]
        return subprocess.run(
            [*command, *options], cwd=folder, capture_output=True, text=True, env=environment
        )

    assert check("--tests").returncode == 0
    without = check()
    assert without.returncode == 1 and "out/mine/test_mine.py: orphan" in without.stderr
