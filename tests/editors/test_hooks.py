"""The hooks of .pre-commit-hooks.yaml, run as pre-commit runs them: entry, args, then the files of the commit."""

import re
import shlex
from pathlib import Path

import pytest

from kvgen.cli import main
from tests.cli.conftest import BAD, GOOD, kvgen

__all__ = ["kvgen"]

HOOKS = (Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text("utf-8")


def hook(name):
    """Its command, and the pattern of its files."""
    body = re.search(rf"^- id: {name}\n((?:  .*\n)*)", HOOKS, re.MULTILINE).group(1)
    entry = re.search(r"^  entry: kvgen (.*)$", body, re.MULTILINE).group(1)
    args = re.search(r"^  args: \[(.*)\]$", body, re.MULTILINE)
    files = re.search(r"^  files: (.*)$", body, re.MULTILINE).group(1)
    listed = [] if args is None else re.split(r",\s*", args.group(1))
    return [*shlex.split(entry), *listed], files


@pytest.fixture
def repository(kvgen, tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/a.kv").write_text(GOOD)
    assert kvgen("compile", "policies", "-o", "generated").exit_code == 0
    return tmp_path


def test_every_hook_is_a_command():
    names = re.findall(r"^- id: (.*)$", HOOKS, re.MULTILINE)
    assert names == ["kvgen-check", "kvgen-fmt", "kvgen-drift"]
    assert all(hook(name)[0][0] in main.commands for name in names)


def test_check(kvgen, repository):
    command, files = hook("kvgen-check")
    assert re.search(files, "policies/a.kv")
    assert kvgen(*command, "policies/a.kv").exit_code == 0
    (repository / "policies/a.kv").write_text(BAD)
    assert kvgen(*command, "policies/a.kv").exit_code == 1


def test_fmt_changes_the_file_which_fails_the_commit(kvgen, repository):
    command, _ = hook("kvgen-fmt")
    (repository / "policies/a.kv").write_text(GOOD.replace("    ", " "))
    assert kvgen(*command, "policies/a.kv").exit_code == 0
    assert (repository / "policies/a.kv").read_text() == GOOD


def test_drift_looks_at_policies_and_at_what_they_compile_to(kvgen, repository):
    command, files = hook("kvgen-drift")
    assert re.search(files, "policies/a.kv") and re.search(files, "generated/a/local.py")
    assert kvgen(*command).exit_code == 0
    (repository / "policies/a.kv").write_text(GOOD.replace("16", "17"))
    result = kvgen(*command)
    assert result.exit_code == 1
    assert "policy changed" in result.stderr
