"""CONTRIBUTING.md is true: its map names every module, and its worked example works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.project.test_process import environment

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TABLE = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
NAMED = [name.removeprefix("kvgen/") for cell in TABLE for name in re.findall(r"`([^`]+)`", cell)]


def test_the_map_names_every_room():
    rooms = [path.name for path in (ROOT / "kvgen").glob("*.py") if path.name != "__init__.py"]
    rooms += [f"{path.parent.name}/" for path in (ROOT / "kvgen").glob("*/__init__.py")]
    assert not [room for room in rooms if not any(fnmatch(room, name) for name in NAMED)]


def test_the_map_names_nothing_else():
    for name in NAMED:
        assert list(ROOT.glob(name)) or list((ROOT / "kvgen").glob(name)), name


@pytest.fixture(scope="module")
def changed(tmp_path_factory) -> Path:
    """A copy of the compiler with the worked example's diff."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("kvgen", "grammars"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (diff,) = (block.text for block in blocks_of(TEXT) if block.language == "diff")
    (copy / "clause.diff").write_text(diff, encoding="utf-8")
    done = subprocess.run(
        ["git", "apply", "--unidiff-zero", "clause.diff"],
        cwd=copy,
        env={**environment(), "GIT_CEILING_DIRECTORIES": str(copy.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return copy


def kvgen(copy: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvgen", *arguments],
        cwd=copy,
        env={**environment(), "PYTHONPATH": str(copy)},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_worked_example_is_a_clause(changed):
    policy = "kvgen 1\n\npolicy Local {\n    heads    query 8 kv 4\n    dim      64\n    temperature 2\n}\n"
    compiled = kvgen(changed, "compile", "-", "--name", "local", "--emit", "code", text=policy)
    assert (
        "SCALE = 0.0625  # the default: 1 / sqrt(key dim), local.kv:6 temperature 2"
        in compiled.stdout
    )
    misspelt = kvgen(changed, "check", "-", text=policy.replace("temperature", "temprature"))
    assert "did you mean `temperature`?" in misspelt.stderr
    assert kvgen(changed, "fmt", "-", text=policy).stdout == policy


def test_the_worked_example_has_its_page(changed):
    page = kvgen(changed, "explain", "temperature").stdout
    bad, good = (block.text for block in blocks_of(page) if block.language == "kv")
    assert "error[KV208]" in kvgen(changed, "check", "-", text=bad).stderr
    assert kvgen(changed, "check", "-", text=good).returncode == 0
    assert "temperature" in kvgen(changed, "list", "clauses").stdout
