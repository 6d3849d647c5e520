"""kvgen compiles attention-cache policies, `.kv` files, to readable PyTorch packages.

compiled = kvgen.compile_file("policies/gemma3.kv")     # Compiled(files, diagnostics); writes nothing
gemma3 = kvgen.load("policies/gemma3.kv")               # the package, imported
cache = gemma3.LocalCache(batch_size=1)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Compiled",
    "Diagnostic",
    "PolicyError",
    "PromptStore",
    "compile_file",
    "compile_text",
    "load",
]

if TYPE_CHECKING:
    from kvgen.diagnostics import Diagnostic
    from kvgen.loading import PolicyError, load
    from kvgen.pipeline import Compiled, compile_file, compile_text
    from kvgen.prompts.store import PromptStore

_HOMES = {
    "Compiled": "kvgen.pipeline",
    "Diagnostic": "kvgen.diagnostics",
    "PolicyError": "kvgen.loading",
    "PromptStore": "kvgen.prompts.store",
    "compile_file": "kvgen.pipeline",
    "compile_text": "kvgen.pipeline",
    "load": "kvgen.loading",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: the command line starts without the compiler."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kvgen' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
