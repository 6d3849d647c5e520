"""What this machine offers to emitted code, and whether the output folder is as kvgen wrote it.

It imports torch, as the commands do that compile or measure kernels; no other part of kvgen does.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

from kvgen import __version__, header, manifest, wording
from kvgen.errors import FileProblem
from kvgen.manifest import Entry
from kvgen.pipeline import format_bytes

COMPILERS = ("c++", "g++", "clang++")


class State(Enum):
    GOOD = "ok"
    ABSENT = "--"  # an optional part that is not there
    WRONG = "!!"  # something to mend


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    state: State
    text: str


def examine(folder: Path) -> Iterator[Finding]:
    """Everything, one finding at a time: importing torch takes seconds."""
    yield Finding("kvgen", State.GOOD, f"{__version__}, {Path(__file__).parent}")
    yield _python()
    torch = _torch()
    yield from torch.findings
    yield _triton()
    yield from extras()
    yield compiler()
    yield built()
    yield from _devices(torch.module)
    yield from _threads(torch.module)
    yield from drift(folder)
    yield from shipped(folder)


# -- Python and its packages


def _python() -> Finding:
    version = platform.python_version()
    return Finding("python", State.GOOD, f"{version}, {platform.platform()}, {sys.executable}")


@dataclass(frozen=True, slots=True)
class _Torch:
    module: Any | None
    findings: tuple[Finding, ...]


def _torch() -> _Torch:
    try:
        import torch
    except ModuleNotFoundError:
        text = "not installed; emitted packages need it: pip install 'kvgen[torch]'"
        return _Torch(None, (Finding("torch", State.ABSENT, text),))
    except (ImportError, OSError) as error:  # a library of it is missing or of another machine
        return _Torch(None, (Finding("torch", State.WRONG, f"does not import: {error}"),))
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    cpu = torch.backends.cpu.get_cpu_capability()
    text = f"{torch.__version__}, built with {built}, CPU kernels {cpu}"
    return _Torch(torch, (Finding("torch", State.GOOD, text),))


def _triton() -> Finding:
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return Finding("triton", State.ABSENT, "not installed; only the triton backend needs it")
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return Finding("triton", State.GOOD, version + (", interpreting" if interpreted else ""))


EXTRAS = {
    "transformers": ("transformers", "emitted caches in generate"),
    "prompts": ("safetensors", "saved prompts"),
    "lsp": ("pygls", "kvgen lsp"),
    "watch": ("watchfiles", "kvgen compile --watch"),
}


def extras() -> Iterator[Finding]:
    """By the package that each is for."""
    for extra, (package, purpose) in EXTRAS.items():
        try:
            text = f"{package} {metadata.version(package)}, for {purpose}"
            yield Finding(extra, State.GOOD, text)
        except metadata.PackageNotFoundError:
            text = f"no {package}, for {purpose}: pip install 'kvgen[{extra}]'"
            yield Finding(extra, State.ABSENT, text)


# -- The machine


def compiler() -> Finding:
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        if path := shutil.which(name):
            return Finding("C++", State.GOOD, f"{path}, {_version_line(path)}")
    missing = f"CXX names {named}, which is not there" if named else "no c++, g++ or clang++"
    state = State.WRONG if named else State.ABSENT
    return Finding("C++", state, f"{missing}; the cpu backend needs one: install g++ or clang")


def _version_line(compiler: str) -> str:
    try:
        answer = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"but it does not run: {error}"
    return (answer.stdout or answer.stderr).split("\n", 1)[0]


def built() -> Finding:
    """Where the cpu backend keeps what it compiled; emitted packages look in the same places (_build.py)."""
    home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or home) / "kvgen"
    folder = Path(os.environ.get("KVGEN_CACHE") or folder)
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        text = f"{folder} cannot be written, so a temporary folder is used; set KVGEN_CACHE"
        return Finding("built", State.ABSENT, text)
    return Finding(
        "built",
        State.GOOD,
        f"{folder}, {wording.counted(len(list(folder.glob('*.so'))), 'kernel')}",
    )


def _devices(torch: Any | None) -> Iterator[Finding]:
    if torch is None:
        return
    if not torch.cuda.is_available():
        yield Finding("devices", State.ABSENT, "no GPU that torch can use; caches run on the CPU")
        return
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        gib = found.total_memory / 2**30
        text = f"{found.name}, {gib:.0f} GiB, capability {found.major}.{found.minor}"
        yield Finding(f"cuda:{index}", State.GOOD, text)


def _threads(torch: Any | None) -> Iterator[Finding]:
    if torch is None:
        return
    pool = _openmp()
    count = torch.get_num_threads()
    if pool is None:
        text = f"torch uses {count}; no libgomp is loaded, so the cpu backend runs on one"
        yield Finding("threads", State.ABSENT, text)
        return
    yield Finding("threads", State.GOOD, f"{count} of {os.cpu_count()}, in torch's pool ({pool})")


def _openmp() -> str | None:
    """The OpenMP library in this process, by its file name."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps.splitlines() if "libgomp" in line}
    return min((Path(path).name for path in paths), default=None)


# -- The output folder


def drift(folder: Path) -> Iterator[Finding]:
    """What is no longer as kvgen would write it. Sources are looked for beside the folder and in policies/ there."""
    what = folder.name
    if not (folder / manifest.NAME).is_file():
        yield Finding(what, State.ABSENT, f"{folder} has no {manifest.NAME}: nothing compiled yet")
        return
    try:
        path = folder / manifest.NAME
        recorded = manifest.load(path.read_text(encoding="utf-8", errors="replace"), path)
    except FileProblem as problem:
        yield Finding(what, State.WRONG, str(problem))
        return
    wrong = [text for name, entry in recorded.items() for text in _drifted(folder, name, entry)]
    yield from (Finding(what, State.WRONG, text) for text in wrong)
    if not wrong:
        count = sum(len(entry.files) for entry in recorded.values())
        text = f"{wording.counted(len(recorded), 'package')}, {wording.counted(count, 'file')}, as kvgen writes them"
        yield Finding(what, State.GOOD, text)


def _drifted(folder: Path, name: str, entry: Entry) -> Iterator[str]:
    for file in entry.files:
        path = folder / name / file
        if not path.is_file():
            yield f"{path} is missing"
        elif not header.intact(path.read_text(encoding="utf-8", errors="replace")):
            yield f"{path} was edited by hand"
    if entry.codegen != header.CODEGEN:
        yield f"{folder / name} was written with other templates, of kvgen {entry.kvgen}"
    for home in (folder.parent, folder.parent / "policies"):
        source = home / entry.source_name
        if source.is_file() and _source_hash(source) != entry.source:
            yield f"{source} changed since {folder / name} was written"


def _source_hash(path: Path) -> str | None:
    text, _ = format_bytes(path.read_bytes(), path.name)
    return None if text is None else header.digest(text)


def shipped(folder: Path) -> Iterator[Finding]:
    """Kernels that `kvgen build --target` put into packages, and whether they are of the code beside them."""
    for shelf in sorted(path for path in folder.glob("*/_kernels/*") if path.is_dir()):
        records = sorted(shelf.glob("*.json"))
        package = shelf.parents[1]
        stale = [record for record in records if not _of_its_module(record, package)]
        what = f"{shelf.relative_to(folder)}: {len(records)} kernels"
        if stale:
            text = f"{what}, {len(stale)} of other code: `kvgen build --target {shelf.name}` again"
            yield Finding(folder.name, State.WRONG, text)
        else:
            yield Finding(folder.name, State.GOOD, what)


def _of_its_module(record: Path, package: Path) -> bool:
    module = package / f"{record.name.partition('.')[0]}.py"
    try:
        text = json.loads(record.read_text(encoding="utf-8"))["kvgen"]["text"]
        body = module.read_text(encoding="utf-8").split("\n", 2)[-1]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return header.digest(body) == text
