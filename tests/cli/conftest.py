"""The command line in this process, for the many; `process` is a real one, for what only that shows."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvgen.cli import main

GOOD = """\
kvgen 1

policy Local {
    heads    query 8 kv 4
    dim      64
    window   16
    storage  ring slack 3
}
"""
BAD = GOOD.replace("kv 4", "kv 3")
WARNED = GOOD.replace("kvgen 1\n\n", "")


@pytest.fixture
def kvgen(tmp_path, monkeypatch) -> Callable[..., Result]:
    """`kvgen("check", "a.kv")` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def process(tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    def call(*arguments: object, **options) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "kvgen", *map(str, arguments)]
        settings = {"cwd": tmp_path, "capture_output": True, "text": True, "encoding": "utf-8"}
        return subprocess.run(command, check=False, timeout=60, **{**settings, **options})

    return call


@pytest.fixture
def files(tmp_path) -> Path:
    """good.kv, bad.kv and warned.kv."""
    for name, text in (("good", GOOD), ("bad", BAD), ("warned", WARNED)):
        (tmp_path / f"{name}.kv").write_text(text)
    return tmp_path
