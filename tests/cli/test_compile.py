"""`kvgen compile`: what is written where, what is said about it, and that nothing else happens."""

import json
from pathlib import Path

import pytest

from kvgen import header
from tests.cli.conftest import BAD, GOOD

pytestmark = pytest.mark.usefixtures("files")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_package_a_file(kvgen, files):
    result = kvgen("compile", "good.kv")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("good.kv -> generated/good: ")
    written = tree(files / "generated")
    assert {"MANIFEST.json", "good/__init__.py", "good/local_cache.py"} <= written.keys()
    assert all(header.intact(text.decode()) for path, text in written.items() if "/" in path)


def test_a_second_run_writes_nothing(kvgen, files):
    kvgen("compile", "good.kv")
    stamps = {path: path.stat().st_mtime_ns for path in files.rglob("generated/**/*")}
    result = kvgen("compile", "good.kv")
    assert result.stderr == "good.kv -> generated/good: unchanged\n"
    assert stamps == {path: path.stat().st_mtime_ns for path in files.rglob("generated/**/*")}


def test_a_failed_compile_writes_nothing_at_all(kvgen, files):
    result = kvgen("compile", "good.kv", "bad.kv")
    assert result.exit_code == 1
    assert "KV206" in result.stderr
    assert not (files / "generated").exists()


def test_a_warning_is_said_and_the_package_written(kvgen, files):
    result = kvgen("compile", "warned.kv")
    assert result.exit_code == 0 and "KV901" in result.stderr
    assert (files / "generated/warned/__init__.py").exists()


def test_another_folder(kvgen, files):
    assert kvgen("compile", "good.kv", "-o", "src/kv").exit_code == 0
    assert (files / "src/kv/good/__init__.py").exists()


def test_standard_input_under_a_name(kvgen, files):
    kvgen("compile", "good.kv")
    assert kvgen("compile", "-", "--name", "good", "-o", "other", stdin=GOOD).exit_code == 0
    assert tree(files / "generated") == tree(files / "other")


def test_where_the_policy_lies_does_not_matter(kvgen, files):
    (files / "deep/er").mkdir(parents=True)
    (files / "deep/er/good.kv").write_text(GOOD)
    kvgen("compile", "good.kv")
    kvgen("compile", files / "deep/er/good.kv", "-o", "other")
    assert tree(files / "generated") == tree(files / "other")


# -- check and diff


def test_check_before_anything_is_written(kvgen, files):
    result = kvgen("compile", "--check", "good.kv")
    assert result.exit_code == 1 and "not written yet" in result.stderr
    assert not (files / "generated").exists()


def test_check_says_why(kvgen, files):
    kvgen("compile", "good.kv")
    assert kvgen("compile", "--check", "good.kv").exit_code == 0

    before = tree(files / "generated")
    (files / "good.kv").write_text(GOOD.replace("window   16", "window   24"))
    result = kvgen("compile", "--check", "good.kv")
    assert result.exit_code == 1 and "policy changed" in result.stderr
    assert tree(files / "generated") == before

    (files / "good.kv").write_text(GOOD)
    cache = files / "generated/good/local_cache.py"
    cache.write_text(cache.read_text().replace("16", "17"))
    result = kvgen("compile", "--check", "good.kv")
    assert result.exit_code == 1 and "file edited by hand (local_cache.py)" in result.stderr


def test_check_knows_new_templates(kvgen, monkeypatch):
    kvgen("compile", "good.kv")
    monkeypatch.setattr(header, "CODEGEN", header.CODEGEN + 1)
    result = kvgen("compile", "--check", "good.kv")
    assert result.exit_code == 1 and "templates changed" in result.stderr


def test_a_comment_is_a_change_of_the_policy(kvgen, files):
    """Its hash is that of the formatted text: the lines that emitted code cites may have moved."""
    kvgen("compile", "good.kv")
    (files / "good.kv").write_text(GOOD.replace("policy", "# why\npolicy"))
    assert "policy changed" in kvgen("compile", "--check", "good.kv").stderr
    (files / "good.kv").write_text(GOOD.replace("    ", "  ").replace("\n", "\r\n"))
    assert kvgen("compile", "--check", "good.kv").exit_code == 0, "spelling is none"


def test_diff_is_a_patch_on_stdout(kvgen, files):
    kvgen("compile", "good.kv")
    assert kvgen("compile", "--diff", "good.kv").exit_code == 0
    before = tree(files / "generated")
    (files / "good.kv").write_text(GOOD.replace("window   16", "window   24"))
    result = kvgen("compile", "--diff", "good.kv")
    assert result.exit_code == 1
    assert "--- a/good/local_cache.py\n+++ b/good/local_cache.py\n" in result.stdout
    assert tree(files / "generated") == before


def test_an_edited_file_is_written_again(kvgen, files):
    kvgen("compile", "good.kv")
    before = tree(files / "generated")
    (files / "generated/good/local_cache.py").write_text("gone = 1\n")
    result = kvgen("compile", "good.kv")
    assert "1 of" in result.stderr and "edited by hand (local_cache.py)" in result.stderr
    assert tree(files / "generated") == before


# -- orphans


def test_orphans_are_reported_and_pruned(kvgen, files):
    (files / "bad.kv").unlink()
    kvgen("compile", ".")
    (files / "warned.kv").unlink()
    result = kvgen("compile", ".")
    assert result.exit_code == 0
    assert "warned/__init__.py: orphan, warned.kv makes it no more" in result.stderr
    assert kvgen("compile", "--check", ".").exit_code == 1
    assert kvgen("compile", "--check", "--prune", ".").exit_code == 1
    assert (files / "generated/warned/__init__.py").exists()

    assert "removed" in kvgen("compile", ".", "--prune").stderr
    assert not (files / "generated/warned").exists()
    assert kvgen("compile", "--check", ".").exit_code == 0


def test_the_last_policy_may_go_too(kvgen, files):
    folder = files / "policies"
    folder.mkdir()
    (files / "good.kv").rename(folder / "good.kv")
    kvgen("compile", "policies")
    (folder / "good.kv").unlink()
    assert "orphan, good.kv" in kvgen("compile", "policies").stderr
    assert kvgen("compile", "policies", "--prune").exit_code == 0
    assert not (files / "generated/good").exists()
    result = kvgen("compile", "policies")
    assert result.exit_code == 2 and "there is no .kv file" in result.stderr


def test_compiling_one_file_orphans_nothing(kvgen, files):
    (files / "bad.kv").unlink()
    kvgen("compile", ".")
    before = tree(files / "generated")
    result = kvgen("compile", "good.kv", "--prune")
    assert "orphan" not in result.stderr
    assert tree(files / "generated") == before
    assert kvgen("compile", "--check", "good.kv").exit_code == 0


def test_a_renamed_policy_leaves_orphans_in_its_package(kvgen, files):
    kvgen("compile", "good.kv")
    (files / "good.kv").write_text(GOOD.replace("Local", "Near"))
    assert "good/local_cache.py: orphan" in kvgen("compile", "good.kv").stderr
    kvgen("compile", "good.kv", "--prune")
    names = {path.name for path in (files / "generated/good").iterdir()}
    assert "near_cache.py" in names and "local_cache.py" not in names


def test_a_package_of_somebody_else_is_never_touched(kvgen, files):
    (files / "generated/good").mkdir(parents=True)
    (files / "generated/good/__init__.py").write_text("mine = 1\n")
    (files / "generated/their.py").write_text("theirs = 1\n")
    before = tree(files / "generated")
    result = kvgen("compile", "good.kv", "--prune")
    assert result.exit_code == 2 and "was not written by kvgen" in result.stderr
    assert tree(files / "generated") == before


# -- stages and backends


@pytest.mark.parametrize(
    ("stage", "word"),
    [
        ("syntax", "Declaration"),
        ("ir", "Retention(window_tokens=16"),
        ("plan", "19 a row"),
        ("code", "class LocalCache"),
    ],
)
def test_a_stage_is_printed_and_nothing_written(kvgen, files, stage, word):
    result = kvgen("compile", "--emit", stage, "good.kv")
    assert (result.exit_code, result.stderr) == (0, "")
    assert word in result.stdout
    assert not (files / "generated").exists()


def test_a_stage_of_a_bad_file_is_its_problems(kvgen):
    result = kvgen("compile", "--emit", "ir", "-", stdin=BAD)
    assert (result.exit_code, result.stdout) == (1, "")


def test_a_stage_has_one_purpose(kvgen):
    for option in ("--check", "--diff", "--prune"):
        assert kvgen("compile", "--emit", "ir", option, "good.kv").exit_code == 2


def test_only_the_backends_asked_for(kvgen, files):
    kvgen("compile", "good.kv", "--backend", "torch")
    names = {path.name for path in (files / "generated/good").iterdir()}
    assert "local_torch.py" in names
    assert not {"local_cpu.py", "local_cpu.cpp", "local_triton.py"} & names
    result = kvgen("compile", "--check", "good.kv")
    assert result.exit_code == 1 and "written for other backends" in result.stderr
    kvgen("compile", "good.kv", "--backend", "cpu, triton")
    names = {path.name for path in (files / "generated/good").iterdir()}
    assert {"local_torch.py", "local_cpu.py", "local_triton.py"} <= names
    result = kvgen("compile", "good.kv", "--backend", "cuda")
    assert result.exit_code == 2 and "torch, cpu, triton" in result.stderr


def test_an_empty_file_is_an_empty_package(kvgen, files):
    (files / "empty.kv").write_text("kvgen 1\n")
    assert kvgen("compile", "empty.kv").exit_code == 0
    assert (files / "generated/empty/__init__.py").exists()


def test_the_manifest_names_what_was_written(kvgen, files):
    kvgen("compile", "good.kv")
    entry = json.loads((files / "generated/MANIFEST.json").read_text())["packages"]["good"]
    names = {path.name for path in (files / "generated/good").iterdir()}
    assert entry["files"].keys() == names
    assert entry["source"] == "good.kv" and entry["codegen"] == header.CODEGEN


@pytest.mark.parametrize("format", ["json", "github"])
def test_problems_in_a_format_for_machines(kvgen, format):
    result = kvgen("compile", "--format", format, "bad.kv")
    assert result.exit_code == 1 and "KV206" in result.stdout and result.stderr == ""


def test_a_folder_that_cannot_be_written(kvgen, files):
    (files / "generated").write_text("in the way")
    assert kvgen("compile", "good.kv").exit_code == 2
