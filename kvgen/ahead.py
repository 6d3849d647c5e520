"""Compile the Triton kernels of an emitted package ahead of time, into the folder where its launcher looks for them.

Needs triton, never a GPU. What the files are called and what a record tells is the package's to say: its `_ahead.py`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kvgen import jobs
from kvgen.ir import CachePolicy, Program, Ring
from kvgen.jobs import Job

FOLDER = "_kernels"
SUFFIXES = {"sm": "cubin", "gf": "hsaco"}


@dataclass(frozen=True, slots=True)
class Shelf:
    """The kernels of one package for one target."""

    folder: Path
    kernels: int
    bytes: int


def build(
    home: Path,
    program: Program,
    target: str,
    columns: tuple[int, ...],
    progress: Callable[[Job], None] = lambda job: None,
) -> Shelf:
    """Compile all that serving the package in `home` launches; what was built before for the target is replaced.

    `columns`: the widths of verify windows, beside those that a policy declares.
    """
    package = jobs.import_package(home)
    ahead = importlib.import_module(f"{package.__name__}._ahead")
    folder = home / FOLDER / target
    beside = folder.with_name(f".{target}.{os.getpid()}.part")
    beside.mkdir(parents=True)
    try:
        compilation = jobs.untyped("triton").knobs.compilation
        with compilation.scope():
            compilation.disable_line_info = True  # which names this machine's folders
            for policy in program.policies:
                _build_policy(
                    policy, package, target, _widths(policy, columns), ahead, beside, progress
                )
        shutil.rmtree(folder, ignore_errors=True)
        beside.replace(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return shelf(folder)


def shelf(folder: Path) -> Shelf:
    files = list(folder.iterdir())
    size = sum(path.stat().st_size for path in files)
    return Shelf(folder, sum(path.suffix == ".json" for path in files), size)


def _widths(policy: CachePolicy, asked: tuple[int, ...]) -> tuple[int, ...]:
    """One column; what slack and bypass are declared for; and what was asked for."""
    slack = policy.storage.slack_slots if isinstance(policy.storage, Ring) else 0
    widths = {1, slack + 1, policy.trim.bypass_tokens + 1, *asked}
    return tuple(sorted(width for width in widths if width <= jobs.STEP_COLUMNS))


def _build_policy(
    policy: CachePolicy,
    package: ModuleType,
    target: str,
    widths: tuple[int, ...],
    ahead: Any,
    folder: Path,
    progress: Callable[[Job], None],
) -> None:
    kernels = jobs.kernels_of(package, policy)
    for launch in jobs.all_of_serving(policy, kernels, target, widths):
        asked = jobs.job(policy, target, launch)
        progress(asked)
        _write(folder, asked, jobs.compile_job(asked), ahead)


def _write(folder: Path, asked: Job, compiled: Any, ahead: Any) -> None:
    function = asked.launch.function
    types = [kind for kind in asked.types.values() if kind != "constexpr"]
    name = ahead.name_of(function, types, asked.launch.constants)
    suffix = SUFFIXES[asked.target[:2]]
    code = compiled.asm[suffix]
    told = next(Path(path) for path in compiled.metadata_group.values() if path.endswith(".json"))
    record = json.loads(told.read_text(encoding="utf-8"))
    record.pop("extern_libs", None)  # folders of this machine, linked already
    record["kvgen"] = {
        "target": asked.target,
        "triton": ahead.TRITON,
        "text": ahead.text_hash(function),
        "code": hashlib.sha256(code).hexdigest(),
        "types": types,
        "constants": asked.launch.constants,
    }
    (folder / f"{name}.{suffix}").write_bytes(code)
    text = json.dumps(record, indent=2, sort_keys=True) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
