"""`kvgen.load`: compile in memory, import from a private folder that goes when the interpreter does.

Why a folder: docs/decisions/0003-load-through-a-folder.md.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import sys
import tempfile
from functools import lru_cache
from os import PathLike
from pathlib import Path
from types import ModuleType

from kvgen import header
from kvgen.diagnostics import Diagnostic
from kvgen.pipeline import Compiled, compile_file, compile_text
from kvgen.report import render


class PolicyError(Exception):
    """A policy file with errors. The message is what `kvgen check` prints; `diagnostics` are the same as data."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(f"the policy does not compile\n\n{render(diagnostics)}")
        self.diagnostics = diagnostics


def load(path: str | PathLike[str]) -> ModuleType:
    """The package of a policy file, imported: `kvgen.load("gemma3.kv").LocalCache(batch_size=1)`.

    Nothing is written beside the policy. The same text gives the same module. Raises PolicyError if it has errors.
    """
    path = Path(path)
    compiled = compile_file(path)
    if not compiled.files:
        raise PolicyError(compiled.diagnostics)
    return _imported(_module_name(path.stem, compiled), path.stem, compiled)


def load_text(text: str, stem: str) -> ModuleType:
    """The package that a file `<stem>.kv` of this text would be."""
    compiled = compile_text(text, stem)
    if not compiled.files:
        raise PolicyError(compiled.diagnostics)
    return _imported(_module_name(stem, compiled), stem, compiled)


def _module_name(stem: str, compiled: Compiled) -> str:
    """A name of its own: it hides no installed package, and two versions of a policy can be loaded together."""
    everything = "\0".join(part for item in sorted(compiled.files.items()) for part in item)
    return f"kvgen_loaded_{stem}_{header.digest(everything)}"


def _imported(name: str, stem: str, compiled: Compiled) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    home = _folder() / name
    home.mkdir(exist_ok=True)
    for relative, text in compiled.files.items():
        (home / relative.removeprefix(f"{stem}/")).write_text(text, encoding="utf-8", newline="\n")
    return import_folder(home, name)


def import_folder(home: Path, name: str) -> ModuleType:
    """The package in a folder, imported under a name of ours; at once if it was before."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, home / "__init__.py", submodule_search_locations=[str(home)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@lru_cache(maxsize=1)
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kvgen-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
