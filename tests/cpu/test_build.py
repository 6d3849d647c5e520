"""Building and caching libraries, with real processes and compilers: only `_build.py`, which knows nothing of torch."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from kvgen.pipeline import compile_text
from tests.cpu.rig import policy_text

BUILD = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("_build", Path(sys.argv[1]) / "_build.py")
build = module_from_spec(spec)
spec.loader.exec_module(build)
print(build.library_path(Path(sys.argv[1]) / "local_cpu.cpp", tuple(sys.argv[2:])))
"""
ELEMENT = "KV_ELEMENT=float"


class Home:
    """A package, a cache folder, and a compiler that counts how often it is asked."""

    def __init__(self, folder: Path, text: str = policy_text(dim="4")) -> None:
        self.package, self.cache, self.log = folder / "pack", folder / "cache", folder / "log"
        for name, source in compile_text(text, "pack").files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(source, encoding="utf-8")
        self.environment = {
            **os.environ,
            "KVGEN_CACHE": str(self.cache),
            "TMPDIR": str(folder),
            "KVGEN_CXXFLAGS": "-O0",
        }
        self.compiler('exec c++ "$@"')

    def compiler(self, does: str) -> None:
        script = self.package.parent / "compiler"
        script.write_text(f"#!/bin/sh\necho run >> {self.log}\n{does}\n")
        script.chmod(0o755)
        self.environment["CXX"] = str(script)

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", BUILD, str(self.package), ELEMENT]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=self.environment, start_new_session=True, **pipes)

    def build(self) -> Path:
        out, err = (process := self.start()).communicate(timeout=120)
        assert process.returncode == 0, err
        return Path(out.strip())

    def fails(self) -> str:
        _, err = (process := self.start()).communicate(timeout=120)
        assert process.returncode != 0
        return err

    @property
    def runs(self) -> int:
        return len(self.log.read_text().split()) if self.log.exists() else 0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def loads(library: Path) -> bool:
    return bool(ctypes.CDLL(str(library)).kv_attend)


def test_once_for_all(home):
    files = sorted(home.package.iterdir())
    first = home.build()
    assert loads(first) and first.parent == home.cache
    assert home.build() == first and home.runs == 1
    assert sorted(home.package.iterdir()) == files  # nothing is written into the package


def test_processes_that_start_together_build_once(home):
    processes = [home.start() for _ in range(4)]
    answers = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert len(answers) == 1 and loads(Path(answers.pop())) and home.runs == 1


def test_a_killed_build_leaves_nothing_that_loads(home):
    slow = home.package.parent / "slow"
    slow.touch()
    write_half = 'while [ "$1" != -o ]; do shift; done; head -c 9999 /dev/zero > "$2"; sleep 60'
    home.compiler(f'if [ -e {slow} ]; then {write_half}; fi; exec c++ "$@"')
    process = home.start()
    while not list(home.cache.glob("*.part")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not list(home.cache.glob("*.so"))
    slow.unlink()
    assert loads(home.build())
    assert not list(home.cache.glob("*.part"))


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "empty", "foreign"])
def test_a_damaged_file_is_built_again(home, damage):
    library = home.build()
    whole = library.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    contents = {
        "cut": whole[: len(whole) // 2],
        "flip": bytes(flipped),
        "text": b"not a library",
        "empty": b"",
        "foreign": Path(ctypes.util.find_library("c") and sys.executable).read_bytes(),
    }
    library.write_bytes(contents[damage])
    assert home.build() == library and library.read_bytes()[:4] == b"\x7fELF" and home.runs == 2
    assert loads(library)


def test_a_folder_that_cannot_be_written(home, tmp_path):
    (tmp_path / "file").write_text("")
    home.environment["KVGEN_CACHE"] = str(tmp_path / "file" / "cache")
    library = home.build()
    assert loads(library) and library.parent == tmp_path / f"kvgen-{os.getuid()}"
    assert home.build() == library and home.runs == 1


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(home):
    home.cache.mkdir(mode=0o500)
    assert loads(home.build())


def test_no_compiler(home):
    home.environment["CXX"] = "no-such-compiler"
    assert "CXX names no-such-compiler, which is not there; install g++ or clang" in home.fails()
    del home.environment["CXX"]
    home.environment["PATH"] = ""
    assert "none of c++, g++, clang++ is there; install g++ or clang" in home.fails()


def test_a_library_built_ahead_needs_no_compiler(home):
    library = home.build()
    home.environment.update(CXX="no-such-compiler")
    assert home.build() == library


def test_a_compiler_that_fails_is_quoted(home):
    home.compiler("echo 'error: out of luck' >&2; exit 1")
    assert "out of luck" in home.fails()
    assert not list(home.cache.glob("*.part"))


def test_what_a_library_depends_on(home, tmp_path):
    first = home.build()
    same = Home(tmp_path / "other", policy_text(dim="4").replace("Local", "local"))
    same.environment.update(KVGEN_CACHE=str(home.cache), CXX=home.environment["CXX"])
    assert same.build() == first  # another name of the policy, the same code
    home.environment["KVGEN_CXXFLAGS"] = "-O0 -g"
    assert home.build() != first
    other = Home(tmp_path / "third", policy_text(dim="4", window="21"))
    other.environment.update(KVGEN_CACHE=str(home.cache), CXX=home.environment["CXX"])
    assert other.build() != first


def test_without_a_compiler_torch_serves_and_says_so_once(monkeypatch, tmp_path):
    from tests.cpu.rig import package

    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("KVGEN_CACHE", str(tmp_path))
    local = package(policy_text(window="29"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        caches = [local.LocalCache(1) for _ in range(3)]
    assert [cache.backend for cache in caches] == ["torch"] * 3
    ours = [str(one.message) for one in caught if "no-such-compiler" in str(one.message)]
    assert len(ours) == 1 and "install g++ or clang" in ours[0]
    with pytest.raises(ImportError, match="install g"):
        local.LocalCache(1, backend="cpu")


def test_a_cached_start_is_quick(home):
    """Hashes and looks: no compiler, no version, no jinja."""
    home.build()
    sys.path.insert(0, str(home.package))
    try:
        build = __import__("_build")
    finally:
        sys.path.remove(str(home.package))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KVGEN_CACHE", "CXX", "KVGEN_CXXFLAGS"):
            patch.setenv(name, home.environment[name])
        times = []
        for _ in range(9):
            start = time.perf_counter()
            build.library_path(home.package / "local_cpu.cpp", (ELEMENT,))
            times.append(time.perf_counter() - start)
    assert home.runs == 1 and min(times) < 0.02


assert shutil.which("c++"), "these tests build with c++"
