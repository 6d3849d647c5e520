# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 7abf88a3da66 codegen 1
"""Builds the C++ kernels of this package: once for a source, a compiler and a CPU, then from a folder of built libraries.

The folder is $KVGEN_CACHE, else the user's cache folder, else a temporary one where that cannot be written. A library is
written beside its name and moved there whole, under a lock, and carries the digest of its bytes: two processes build once,
a killed build leaves nothing that loads, and what is damaged is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",  # a * b + c is one instruction
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
)
NATIVE = ("-march=native", "-mcpu=native", "")  # the first that the compiler knows
DIGEST_MARK = b"\nkvgen library\n"


def library_path(source: Path, macros: tuple[str, ...]) -> Path:
    """The built library of a source file, built now if it is not there.

    Raises ImportError, saying what to do, where there is neither a library nor a compiler, or the compiler fails.
    """
    what = f"{source.stem}-{_digest(_texts(source), *macros, *_flags(), _cpu())}"
    compiler = find_compiler()
    if compiler is None:
        return _built_elsewhere(what)
    name = f"{what}-{_digest(_identity(compiler))}.so"
    for folder in _folders():
        if _is_whole(folder / name):
            return folder / name
    for folder in _folders():
        with contextlib.suppress(_CannotWrite):
            return _build_once(folder, name, compiler, source, macros)
    raise ImportError(
        f"no folder for built kernels can be written, tried {', '.join(map(str, _folders()))};"
        " set KVGEN_CACHE to one that can"
    )


def find_compiler() -> str | None:
    """The C++ compiler: what CXX names, else the first there is. A CXX that is not there counts as none."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        if path := shutil.which(name):
            return path
    return None


# -- one library


def _build_once(
    folder: Path, name: str, compiler: str, source: Path, macros: tuple[str, ...]
) -> Path:
    library = folder / name
    with _locked(folder, name):
        if _is_whole(library):  # another process built it while this one waited
            return library
        for left_over in folder.glob(f"{name}.*.part"):
            left_over.unlink(missing_ok=True)
        part = folder / f"{name}.{os.getpid()}.part"
        try:
            _compile(compiler, source, macros, part)
            _seal(part)
            part.replace(library)
        except OSError as error:
            raise _CannotWrite from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
    return library


class _CannotWrite(Exception):
    """This folder will not do; the next may."""


def _compile(compiler: str, source: Path, macros: tuple[str, ...], to: Path) -> None:
    failures = []
    for native in NATIVE:
        flags = [*_flags(), *([native] if native else [])]
        command = [
            compiler,
            *flags,
            *(f"-D{macro}" for macro in macros),
            str(source),
            "-o",
            str(to),
            *_libraries(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if not to.parent.is_dir() or not os.access(to.parent, os.W_OK):
            raise _CannotWrite
        failures.append(f"{' '.join(command)}\n{done.stderr[:2000]}")
    raise ImportError(
        f"{compiler} cannot build {source.name}; set CXX to another compiler. It said:\n{failures[0]}"
    )


def _seal(library: Path) -> None:
    """Append the digest; what loads libraries ignores what comes after them."""
    data = library.read_bytes()
    with library.open("ab") as file:
        file.write(DIGEST_MARK + hashlib.sha256(data).digest())
        file.flush()
        os.fsync(file.fileno())


def _is_whole(library: Path) -> bool:
    """Whether a file is there, ours, and has the digest of its bytes: loading a torn library would end the process."""
    try:
        with library.open("rb") as file:
            if os.fstat(file.fileno()).st_uid not in (os.getuid(), 0):
                return False
            data = file.read()
    except OSError:
        return False
    end = len(data) - len(DIGEST_MARK) - 32
    return data[end:] == DIGEST_MARK + hashlib.sha256(data[: max(0, end)]).digest()


@contextlib.contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    try:
        lock = (folder / f"{name}.lock").open("w")
    except OSError as error:
        raise _CannotWrite from error
    with lock:
        # A file system without locks may build twice, and never has a torn library.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _built_elsewhere(what: str) -> Path:
    """Without a compiler: a library that another one built from this source, for this CPU."""
    for folder in _folders():
        for library in sorted(folder.glob(f"{what}-*.so")):
            if _is_whole(library):
                return library
    named = os.environ.get("CXX")
    missing = (
        f"CXX names {named}, which is not there"
        if named
        else f"none of {', '.join(COMPILERS)} is there"
    )
    raise ImportError(f"the cpu kernels need a C++ compiler and {missing}; install g++ or clang")


# -- folders


def _folders() -> tuple[Path, ...]:
    """Where libraries may be, the best place first."""
    named = os.environ.get("KVGEN_CACHE")
    candidates = [Path(named)] if named else [_user_cache() / "kvgen"]
    with contextlib.suppress(OSError):
        candidates[0].mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.gettempdir()) / f"kvgen-{os.getuid()}"
    with contextlib.suppress(OSError):
        temporary.mkdir(mode=0o700, exist_ok=True)
    if _is_private(temporary):
        candidates.append(temporary)
    return tuple(folder for folder in candidates if folder.is_dir())


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _is_private(folder: Path) -> bool:
    """Nobody else can put a library there."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


# -- what a library depends on


def _texts(source: Path) -> str:
    """The code without its comments: policies that differ in name only share a library."""
    files = [source, *sorted(source.parent.glob("_cpu*.h"))]
    lines = "".join(file.read_text("utf-8") for file in files).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


def _flags() -> tuple[str, ...]:
    return FLAGS + tuple(os.environ.get("KVGEN_CXXFLAGS", "").split())


def _libraries() -> tuple[str, ...]:
    return ("-ldl",) if sys.platform == "linux" else ()


def _identity(compiler: str) -> str:
    """The compiler and its version, without asking it: that would take longer than loading the library."""
    path = os.path.realpath(compiler)
    found = os.stat(path)
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _cpu() -> str:
    """The instructions that `native` stands for: a cache folder may be shared by different machines."""
    with (
        contextlib.suppress(OSError),
        open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file,
    ):
        for line in file:
            if line.startswith(("flags", "Features")):
                return f"{platform.machine()} {line}"
    return f"{platform.machine()} {platform.processor()}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
