"""`kvgen.compile_text`, `compile_file`, `load`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kvgen
from tests.cli.conftest import BAD, GOOD, WARNED


def test_compile_text_gives_files_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compiled = kvgen.compile_text(GOOD, "near")
    assert compiled.diagnostics == ()
    assert {"near/__init__.py", "near/local_cache.py"} <= compiled.files.keys()
    assert all(isinstance(text, str) for text in compiled.files.values())
    assert list(tmp_path.iterdir()) == []
    assert kvgen.compile_text(GOOD, "near.kv").files == compiled.files


def test_problems_are_data():
    compiled = kvgen.compile_text(BAD, "near")
    assert compiled.files == {}
    (problem,) = compiled.diagnostics
    assert problem.code == "KV206" and problem.is_error and problem.place == (4, 20)
    assert str(problem).startswith("near.kv:4:20: error[KV206]: ")


def test_a_warning_leaves_the_files():
    compiled = kvgen.compile_text(WARNED, "near")
    assert compiled.files and [one.code for one in compiled.diagnostics] == ["KV901"]


@pytest.mark.parametrize("name", ["", "1st", "a-b", "class", "a/b", "x\nimport os", "a.b"])
def test_a_name_that_is_no_package(name):
    with pytest.raises(ValueError, match="cannot name a Python package"):
        kvgen.compile_text(GOOD, name)


def test_compile_file(tmp_path):
    path = tmp_path / "near.kv"
    path.write_text(GOOD)
    assert kvgen.compile_file(path).files == kvgen.compile_text(GOOD, "near").files
    assert kvgen.compile_file(str(path)).files.keys() == kvgen.compile_file(path).files.keys()
    with pytest.raises(FileNotFoundError):
        kvgen.compile_file(tmp_path / "nosuch.kv")
    path.write_bytes(b"\xff")
    assert [one.code for one in kvgen.compile_file(path).diagnostics] == ["KV100"]


def test_load_gives_a_working_package(tmp_path):
    path = tmp_path / "near.kv"
    path.write_text(GOOD)
    near = kvgen.load(path)
    assert list(tmp_path.iterdir()) == [path], "nothing is written beside the policy"
    cache = near.LocalCache(1, dtype=torch.float32, backend="torch")
    k, v, q = (torch.randn(1, heads, 5, 64) for heads in (4, 4, 8))
    out = cache.append_window(k, v).attend(q)
    assert out.shape == (1, 8, 5, 64) and cache.offset == 5


def test_load_of_two_versions_side_by_side(tmp_path):
    path = tmp_path / "near.kv"
    path.write_text(GOOD)
    first = kvgen.load(path)
    assert kvgen.load(path) is first
    path.write_text(GOOD.replace("window   16", "window   24"))
    second = kvgen.load(path)
    assert (
        first.LocalCache(1, backend="torch").window,
        second.LocalCache(1, backend="torch").window,
    ) == (16, 24)


def test_load_hides_no_other_package(tmp_path):
    path = tmp_path / "json.kv"
    path.write_text(GOOD)
    kvgen.load(path)
    import json

    assert json.loads("1") == 1 and "kvgen" not in str(json.__file__).lower()


def test_load_of_a_bad_policy_says_all_that_check_says(tmp_path):
    path = tmp_path / "near.kv"
    path.write_text(BAD)
    with pytest.raises(kvgen.PolicyError) as raised:
        kvgen.load(path)
    assert "error[KV206]" in str(raised.value) and "near.kv:4:20" in str(raised.value)
    assert [one.code for one in raised.value.diagnostics] == ["KV206"]


def test_load_of_an_empty_policy(tmp_path):
    path = tmp_path / "near.kv"
    path.write_text("kvgen 1\n")
    assert kvgen.load(path).__doc__ == "The attention caches of near.kv."


def test_the_private_folder_goes_with_the_interpreter(tmp_path):
    (tmp_path / "near.kv").write_text(GOOD)
    (tmp_path / "private").mkdir()
    script = "import kvgen; print(kvgen.load('near.kv').LocalCache.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(kvgen.__file__).parents[1]),
            "TMPDIR": str(tmp_path / "private"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("kvgen_loaded_near_")
    assert list((tmp_path / "private").iterdir()) == []


def test_the_package_says_what_it_has():
    assert {"compile_file", "compile_text", "load"} <= set(kvgen.__all__)
    assert all(hasattr(kvgen, name) for name in kvgen.__all__)
    with pytest.raises(AttributeError, match="nosuch"):
        _ = kvgen.nosuch
