"""`kvgen draw`: what goes where."""

import subprocess
import sys

from tests.draw.conftest import ROOT

POLICY = str(ROOT / "policies" / "gemma3.kv")


def kvgen(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "kvgen", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_text_by_default_and_the_format_of_the_output(tmp_path):
    printed = kvgen("draw", POLICY)
    assert printed.returncode == 0 and printed.stdout.startswith("policy Local  gemma3.kv:7\n")
    assert kvgen("draw", POLICY, "-o", tmp_path / "a.html").returncode == 0
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    written = kvgen("draw", POLICY, "-o", tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    assert written.stdout == "" and written.stderr.strip().endswith("a.svg: written")


def test_one_policy(tmp_path):
    found = kvgen("draw", POLICY, "--policy", "Global")
    assert "policy Global" in found.stdout and "policy Local" not in found.stdout
    unknown = kvgen("draw", POLICY, "--policy", "Locale")
    assert unknown.returncode == 2 and "it declares Local, Global" in unknown.stderr


def test_a_wrong_policy_is_reported(tmp_path):
    (tmp_path / "bad.kv").write_text("kvgen 1\npolicy P { dim 8 }\n")
    found = kvgen("draw", tmp_path / "bad.kv")
    assert found.returncode == 1 and "error[" in found.stderr and found.stdout == ""


def test_report_is_shown(tmp_path):
    (tmp_path / "report.txt").write_text("all proved")
    page = kvgen("draw", POLICY, "--format", "html", "--report", tmp_path / "report.txt")
    assert "all proved" in page.stdout
