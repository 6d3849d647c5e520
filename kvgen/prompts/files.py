"""A cache in a file: its state in safetensors, with what it takes to refuse a wrong or damaged one.

The header's entry `kvgen` is JSON: format version, what the policies say of stored bytes (`signature`) and of scores, a digest
of all tensors, the state's numbers and strings, and the caller's metadata. A file is written beside its place and renamed, so that no reader sees half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import torch

FORMAT = 1


class Saved(Protocol):
    """An emitted cache, a model's caches, or its HFCache."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], *device: Any) -> None: ...

    def scores(self) -> str: ...


class PromptFileError(ValueError):
    """A file that no cache can be loaded from: which one, and why."""


def save(
    cache: Saved, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a cache, and anything that JSON can say beside it, such as the tokens and the model's name."""
    from safetensors.torch import save as to_bytes

    state = cache.state_dict()
    tensors = {name: value.cpu().contiguous() for name, value in state.items() if _is_tensor(value)}
    values = {name: value for name, value in state.items() if name not in tensors}
    about = {
        "format": FORMAT,
        "signature": state["signature"],
        "scores": cache.scores(),
        "values": values,
        "metadata": dict(metadata or {}),
    }
    try:
        about["digest"] = _digest(about, tensors)
    except TypeError as error:
        raise ValueError(f"metadata must be what JSON can say: {error}") from error
    _replace(Path(path), to_bytes(tensors, {"kvgen": json.dumps(about)}))


def load(cache: Saved, path: str | os.PathLike[str], device: Any = None) -> dict[str, Any]:
    """Make `cache` what was saved, and return the caller's metadata.

    `device`: where an HFCache that has seen no keys shall be, by default on the CPU; other caches are somewhere.
    PromptFileError, and the cache is as it was, for a file that is damaged, foreign, or of a newer kvgen.
    """
    path = Path(path)
    about, tensors = _read(path, tensors=True)
    digest = about.pop("digest")
    if _digest(about, tensors) != digest:
        raise PromptFileError(f"{path}: it is not as it was written; compute the prompt again")
    if about["scores"] != cache.scores():
        raise PromptFileError(
            f"{path} is of another cache: its scores were made with {about['scores']!r}, this one's are with "
            f"{cache.scores()!r}; compute the prompt again"
        )
    try:
        cache.load_state_dict(
            {**about["values"], **tensors}, *(() if device is None else (device,))
        )
    except ValueError as error:
        raise PromptFileError(f"{path} is of another cache: {error}") from error
    return about["metadata"]


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the caller saved beside the cache, without reading the cache."""
    return _read(Path(path), tensors=False)[0]["metadata"]


def _read(path: Path, tensors: bool) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    if path.is_dir():
        raise PromptFileError(f"{path} is a folder: give the file that was saved")
    try:
        opened: Any = safe_open(path, framework="pt")
        with opened as file:
            about = _about(path, file.metadata())
            names = file.keys() if tensors else ()
            return about, {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise PromptFileError(f"{path} is cut short or not a safetensors file: {error}") from error


def _about(path: Path, header: dict[str, str] | None) -> dict[str, Any]:
    """The entry `kvgen` of a file's header, checked."""
    try:
        about: Any = json.loads((header or {})["kvgen"])
    except (KeyError, ValueError) as error:
        raise PromptFileError(
            f"{path} holds no prompt of kvgen: its header has no such entry"
        ) from error
    entries = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    if not isinstance(entries.get("format"), int):
        raise PromptFileError(f"{path} holds no prompt of kvgen: its header names no format")
    if entries["format"] > FORMAT:
        raise PromptFileError(
            f"{path} has format {entries['format']}, this kvgen reads up to {FORMAT}: update kvgen, or compute the prompt again"
        )
    if any(not isinstance(entries.get(name), kind) for name, kind in _ENTRIES.items()):
        raise PromptFileError(f"{path}: its header is damaged; compute the prompt again")
    return entries


_ENTRIES = {"signature": str, "scores": str, "digest": str, "values": dict, "metadata": dict}


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _digest(about: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Of the header's entry, and of the tensors' names, shapes, types and bytes."""
    import torch

    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
