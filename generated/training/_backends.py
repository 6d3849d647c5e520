# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 10caeffcb86d codegen 1
"""Which kernels a cache runs on."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import torch

PREFERRED = {"cuda": ("triton", "torch"), "cpu": ("cpu", "torch")}  # by device type, for "auto"
_warned: set[str] = set()


def open_kernels(
    emitted: dict[str, str],
    package: str,
    backend: str,
    batch_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[str, Any]:
    """The name of the backend and its kernels. `emitted`: backend to "module.Class", as compiled.

    Raises ValueError for an unknown name and ImportError, saying what is missing, where a named one cannot run.
    """
    if backend == "auto":
        return _first_that_runs(emitted, package, batch_size, dtype, device)
    if backend not in ("torch", "cpu", "triton"):
        raise ValueError(f"backend must be 'auto', 'torch', 'cpu' or 'triton', got {backend!r}")
    if backend not in emitted:
        raise ImportError(
            f"this package was compiled without {backend} kernels; compile it again with"
            f" `kvgen compile --backend {','.join([*emitted, backend])}`"
        )
    return backend, _load(emitted[backend], package)(batch_size, dtype, device)


def _first_that_runs(emitted, package, batch_size, dtype, device) -> tuple[str, Any]:
    for backend in PREFERRED.get(device.type, ("torch",)):
        if backend not in emitted:
            continue
        try:
            return backend, _load(emitted[backend], package)(batch_size, dtype, device)
        except ImportError as error:
            _warn_once(f"the {backend} backend cannot run here, torch is used instead: {error}")
    raise ImportError("no backend of this package runs here; compile it again with all backends")


def _load(path: str, package: str) -> Any:
    module, name = path.split(".")
    try:
        return getattr(importlib.import_module(f".{module}", package), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed; `pip install {error.name}`, or use backend='torch'"
        ) from error


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=5)
