"""The client of editors/vscode against a real server, in a stand-in for VS Code that Node runs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "editors/vscode"
DRIVER = Path(__file__).with_name("vscode.js")

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")


def run(*command):
    done = subprocess.run(
        ["node", DRIVER, FOLDER / "extension.js", json.dumps(command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_the_client_asks_and_shows():
    said = run(sys.executable, "-m", "kvgen", "lsp")
    assert said["hover"].startswith("# heads")
    assert "window" in said["completion"]
    assert [one["code"] for one in said["problems"]] == ["KV101"]
    assert said["fixes"] == ["write `window` for `windw`", "Fix all that kvgen can fix"]
    assert said["formatted"] == 0, "what cannot be read is left"
    assert said["warnings"] == []
    assert said["ended"]


def test_a_server_that_is_not_there_is_said_once():
    (warning,) = run("no-such-kvgen", "lsp")["warnings"]
    assert "`no-such-kvgen lsp` does not run" in warning and "kvgen[lsp]" in warning
