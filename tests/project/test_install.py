"""However kvgen came to a machine, it finds its grammar, its templates and its pages."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("click", "jinja2", "lark", "markupsafe")


def run(*command: object, cwd: Path) -> str:
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with an sdist, and a wheel built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture
def empty(tmp_path) -> Path:
    """An environment with kvgen's three dependencies and nothing else, not even pip."""
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.submodule_search_locations
        source = Path(spec.submodule_search_locations[0])
        (site_packages(home) / name).symlink_to(source, target_is_directory=True)
    return home


def site_packages(home: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))


def python_of(home: Path) -> Path:
    return Path(sysconfig.get_path("scripts", "venv", {"base": str(home)})) / "python"


def install(wheel: Path, home: Path) -> None:
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "--python", python_of(home), "install")
    run(*pip, *options, wheel, cwd=home)


def assert_works(command: tuple[object, ...], folder: Path, home: Path) -> None:
    """It compiles a policy, explains a code, and is the kvgen that `home` holds."""
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "policies/gemma3.kv", folder)
    run(*command, "compile", folder / "gemma3.kv", "-o", folder / "out", cwd=folder)
    assert (folder / "out/gemma3/__init__.py").is_file()
    assert "ring" in run(*command, "explain", "KV203", cwd=folder)
    assert str(home) in run(*command, "doctor", cwd=folder).splitlines()[0]


def test_wheel(built, empty, tmp_path):
    (wheel,) = built.glob("*.whl")
    install(wheel, empty)
    scripts = python_of(empty).parent
    assert_works((scripts / "kvgen",), tmp_path / "by command", empty)
    assert_works((scripts / "python", "-m", "kvgen"), tmp_path / "by module", empty)


def test_wheel_holds_all_of_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == {"kvgen", "kvgen-0.1.0.dist-info"}
    assert {"kvgen/kv.lark", "kvgen/py.typed"} <= names
    if shutil.which("git") and (ROOT / ".git").exists():
        assert set(run("git", "ls-files", "kvgen", cwd=ROOT).split()) <= names


def test_sdist_builds_and_runs_where_it_is_unpacked(built, empty, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("kvgen-*")
    assert_works((python_of(empty), "-m", "kvgen"), unpacked, unpacked)


def test_editable(empty, tmp_path):
    pytest.importorskip("hatchling")
    script = f"from hatchling.build import build_editable; print(build_editable({str(tmp_path)!r}))"
    wheel = run(sys.executable, "-c", script, cwd=ROOT).split()[-1]
    install(tmp_path / wheel, empty)
    assert_works((python_of(empty).parent / "kvgen",), tmp_path / "work", ROOT)


def test_checkout(empty, tmp_path):
    """Nothing installed: the folder as it is cloned."""
    checkout = tmp_path / "checkout"
    for name in ("kvgen", "grammars"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert_works((python_of(empty), "-m", "kvgen"), checkout, checkout)
