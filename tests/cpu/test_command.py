"""`kvgen build`: the kernels of a file, compiled ahead."""

import os

from click.testing import CliRunner

from kvgen.cli import main
from tests.cpu.rig import policy_text


def test_build_into_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KVGEN_CXXFLAGS", "-O0")
    path, out = tmp_path / "rig.kv", tmp_path / "out"
    path.write_text(
        f"{policy_text()}policy Training {{ heads query 2 kv 1 dim 8 dtype f32 stateless }}\n"
    )
    before = os.environ.get("KVGEN_CACHE")
    done = CliRunner().invoke(main, ["build", str(path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert f"Local: {out}" in done.output and "Training: nothing to build" in done.output
    assert len(list(out.glob("local_cpu-*.so"))) == 1
    assert os.environ.get("KVGEN_CACHE") == before


def test_no_compiler_is_a_file_problem(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    path = tmp_path / "rig.kv"
    path.write_text(policy_text())
    done = CliRunner().invoke(main, ["build", str(path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2 and "install g++ or clang" in done.output


def test_a_wrong_policy_builds_nothing(tmp_path):
    path = tmp_path / "rig.kv"
    path.write_text("kvgen 1\npolicy Local {\n}\n")
    done = CliRunner().invoke(main, ["build", str(path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1 and not (tmp_path / "out").exists()
