"""The output folder: what is written, what is said about the rest, and what is never touched."""

import json
from pathlib import Path

import pytest

from kvgen import header, manifest, outdir, textfile
from kvgen.errors import FileProblem
from kvgen.outdir import Package, Why

ALL = ("torch", "cpu", "triton")


def package(name="alpha", formatted="policy", backends=ALL, **bodies):
    bodies = bodies or {"__init__": "x = 1\n", "local_cache": "y = 2\n"}
    files = {f"{k}.py": header.stamp(body, f"{name}.kv", formatted) for k, body in bodies.items()}
    return Package(name, f"{name}.kv", formatted, backends, files)


def written(folder: Path, *packages: Package, whole=True, prune=False):
    found = outdir.compare(folder, packages, whole)
    outdir.write(found)
    if prune:
        outdir.prune(found)
    return found


def whys(found):
    return {change.path: change.why for change in found.changes}


def tree(folder: Path):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_first_run_writes_everything_and_a_second_nothing(tmp_path):
    first = written(tmp_path, package())
    assert set(whys(first).values()) == {Why.NEW}
    assert tree(tmp_path).keys() == {"alpha/__init__.py", "alpha/local_cache.py", "MANIFEST.json"}
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    assert written(tmp_path, package()).clean
    assert stamps == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}


def test_only_what_changed_is_written(tmp_path):
    written(tmp_path, package())
    untouched = (tmp_path / "alpha/__init__.py").stat().st_ino
    found = written(tmp_path, package(__init__="x = 1\n", local_cache="y = 3\n"))
    assert whys(found) == {
        "alpha/local_cache.py": Why.TEMPLATES,
        "MANIFEST.json": Why.TEMPLATES,
    }
    assert (tmp_path / "alpha/__init__.py").stat().st_ino == untouched


def test_why_a_file_differs(tmp_path):
    written(tmp_path, package())
    changed = package(formatted="policy 2", __init__="x = 1\n", local_cache="y = 3\n")
    assert whys(outdir.compare(tmp_path, (changed,), True))["alpha/local_cache.py"] is Why.POLICY

    other = package(backends=("torch",), __init__="x = 0\n", local_cache="y = 2\n")
    assert whys(outdir.compare(tmp_path, (other,), True))["alpha/__init__.py"] is Why.BACKENDS

    path = tmp_path / "alpha/local_cache.py"
    path.write_text(path.read_text() + "# mine\n")
    assert whys(outdir.compare(tmp_path, (package(),), True)) == {
        "alpha/local_cache.py": Why.EDITED
    }
    assert whys(outdir.compare(tmp_path, (changed,), True))["alpha/local_cache.py"] is Why.EDITED
    path.write_text("no header at all\n")
    assert whys(outdir.compare(tmp_path, (package(),), True)) == {
        "alpha/local_cache.py": Why.EDITED
    }
    path.unlink()
    assert whys(outdir.compare(tmp_path, (package(),), True)) == {
        "alpha/local_cache.py": Why.DELETED
    }


def test_line_ends_that_version_control_changed_are_no_difference(tmp_path):
    written(tmp_path, package())
    for path in tmp_path.rglob("*.*"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert outdir.compare(tmp_path, (package(),), True).clean


def test_orphans_are_reported_then_pruned(tmp_path):
    written(tmp_path, package("alpha"), package("beta"))
    (tmp_path / "beta/__pycache__").mkdir()
    found = written(tmp_path, package("alpha"))
    assert [o.path for o in found.orphans] == ["beta/__init__.py", "beta/local_cache.py"]
    assert [c.path for c in found.changes] == []
    assert (tmp_path / "beta/__init__.py").exists()

    written(tmp_path, package("alpha"), prune=True)
    assert not (tmp_path / "beta").exists()
    assert outdir.compare(tmp_path, (package("alpha"),), True).clean
    assert "beta" not in (tmp_path / "MANIFEST.json").read_text()


def test_compiling_one_file_orphans_nothing(tmp_path):
    written(tmp_path, package("alpha"), package("beta"))
    before = tree(tmp_path)
    assert written(tmp_path, package("alpha"), whole=False, prune=True).clean
    assert tree(tmp_path) == before


def test_a_file_that_the_package_no_longer_has_is_an_orphan(tmp_path):
    written(tmp_path, package("alpha", __init__="", local_cache="y\n"))
    now = package("alpha", __init__="")
    found = written(tmp_path, now, whole=False)
    assert [o.path for o in found.orphans] == ["alpha/local_cache.py"]
    assert not outdir.compare(tmp_path, (now,), False).clean, "it stays an orphan until it is gone"
    written(tmp_path, now, whole=False, prune=True)
    assert not (tmp_path / "alpha/local_cache.py").exists()
    assert outdir.compare(tmp_path, (now,), False).clean


def test_an_orphan_edited_by_hand_is_left(tmp_path):
    written(tmp_path, package("alpha"), package("beta"))
    edited = tmp_path / "beta/local_cache.py"
    edited.write_text(edited.read_text() + "# precious\n")
    found = written(tmp_path, package("alpha"), prune=True)
    assert [o.file for o in found.orphans if o.edited] == ["local_cache.py"]
    assert "precious" in edited.read_text()
    assert not (tmp_path / "beta/__init__.py").exists()


def test_a_package_that_kvgen_did_not_write_is_never_touched(tmp_path):
    (tmp_path / "alpha").mkdir()
    (tmp_path / "alpha/__init__.py").write_text("mine = True\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thing.py").write_text("mine = True\n")
    before = tree(tmp_path)
    with pytest.raises(FileProblem, match="was not written by kvgen"):
        written(tmp_path, package("alpha"), prune=True)
    assert tree(tmp_path) == before
    written(tmp_path, package("beta"), prune=True)
    assert before.items() <= tree(tmp_path).items()


def test_a_hostile_manifest_removes_nothing(tmp_path):
    outside = tmp_path / "outside.py"
    outside.write_text(header.stamp("z = 1\n", "old.kv", "p"))
    folder = tmp_path / "generated"
    written(folder, package("alpha"))
    record = json.loads((folder / "MANIFEST.json").read_text())
    for name, file in (("..", "outside.py"), ("old", "../../outside.py"), ("", "x")):
        entry = {**record["packages"]["alpha"], "files": {file: "0" * 12}}
        (folder / "MANIFEST.json").write_text(json.dumps({"packages": {name: entry}}))
        with pytest.raises(FileProblem, match="plain file name"):
            written(folder, package("alpha"), prune=True)
        assert outside.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"packages": {"a": 1}}', "<<<<<<< HEAD\n"])
def test_a_broken_manifest_is_a_problem_with_a_remedy(tmp_path, text):
    written(tmp_path, package())
    (tmp_path / "MANIFEST.json").write_text(text)
    with pytest.raises(FileProblem, match="delete it and compile again"):
        written(tmp_path, package())


def test_a_lost_manifest_is_written_again(tmp_path):
    written(tmp_path, package())
    before = tree(tmp_path)
    (tmp_path / "MANIFEST.json").unlink()
    found = written(tmp_path, package())
    assert whys(found) == {"MANIFEST.json": Why.NEW}
    assert tree(tmp_path) == before


def test_the_manifest_keeps_the_version_that_wrote_a_package(tmp_path, monkeypatch):
    monkeypatch.setattr(outdir, "__version__", "0.0.1")
    written(tmp_path, package("alpha"), package("beta"))
    monkeypatch.setattr(outdir, "__version__", "0.0.2")
    assert outdir.compare(tmp_path, (package("alpha"), package("beta")), True).clean
    written(tmp_path, package("alpha", local_cache="new\n"), package("beta"))
    path = tmp_path / "MANIFEST.json"
    record = manifest.load(path.read_text(), path)
    assert {name: entry.kvgen for name, entry in record.items()} == {
        "alpha": "0.0.2",
        "beta": "0.0.1",
    }


def test_the_diff_applies(tmp_path):
    written(tmp_path, package(__init__="a\nb\nc\n"))
    found = outdir.compare(tmp_path, (package(__init__="a\nB\nc"),), True)
    text = outdir.diff(found)
    assert "--- a/alpha/__init__.py\n+++ b/alpha/__init__.py\n" in text
    assert "-b\n" in text and "+B\n" in text
    assert "\\ No newline at end of file\n" in text


def test_a_file_in_the_folders_place_is_a_problem(tmp_path):
    (tmp_path / "generated").write_text("")
    with pytest.raises(FileProblem, match="generated"):
        written(tmp_path / "generated", package())


def test_writing_keeps_the_mode_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "policy.kv"
    path.write_text("old")
    path.chmod(0o640)
    textfile.write(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_writing_through_a_link_keeps_the_link(tmp_path):
    target = tmp_path / "real.kv"
    target.write_text("old")
    link = tmp_path / "link.kv"
    link.symlink_to(target)
    textfile.write(link, "new")
    assert link.is_symlink() and target.read_text() == "new"


def test_a_header_says_whether_a_file_is_as_written():
    text = header.stamp("// body\n", "a.kv", "policy", comment="//")
    found = header.read(text)
    assert (found.source_name, found.source) == ("a.kv", header.digest("policy"))
    assert header.intact(text) and not header.intact(text + " ")
    assert header.read("") is None and not header.intact("")
