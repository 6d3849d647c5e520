# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body da118f9d32f6 codegen 1
"""What all caches of this package have in common: what they are made of, and on which kernels they run."""

from __future__ import annotations

from typing import Any

import torch

from ._backends import open_kernels
from ._checks import shared_masks, stored_dtype, usable_device, whole_number
from ._masks import Masks


class Constant:
    """An attribute that the policy decided: the same on the class and on every cache, and read-only."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __get__(self, cache: Any, kind: Any = None) -> Any:
        return self.value

    def __set__(self, cache: Any, value: Any) -> None:
        raise AttributeError("this is read-only: the policy decided it when it was compiled")


class Cache:
    """`B` rows; a policy's class gives the numbers below."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    sinks: int
    chunk: int | None

    DTYPE: torch.dtype  # of keys and values, unless the constructor says another
    STORED: str  # what the signature says of the storage
    SCORES: str  # how scores are made
    KERNELS: dict[str, str]  # backend to "module.Class"
    STATELESS = False  # whether nothing is stored
    OPEN_CAPACITY = False  # whether the constructor says how many slots a row has
    bypass_tokens = 0  # how many tokens a trim may take back unasked, after a verify window

    def _set_up(
        self,
        batch_size: int,
        device: Any,
        dtype: torch.dtype | None,
        backend: str,
        masks: Masks | None,
    ) -> None:
        self._batch_size = whole_number(batch_size, "batch_size", at_least=1)
        self._device, self._dtype = usable_device(device), stored_dtype(dtype, self.DTYPE)
        self._masks = shared_masks(masks)
        self._wanted_backend = backend
        self._backend, self._kernels = self._open(self._batch_size, self._device)

    def _open(self, rows: int, device: torch.device) -> tuple[str, Any]:
        wanted = self._wanted_backend
        return open_kernels(self.KERNELS, __package__, wanted, rows, self._dtype, device)

    batch_size = property(lambda self: self._batch_size, doc="Rows.")
    device = property(lambda self: self._device, doc="Where keys and values are.")
    dtype = property(lambda self: self._dtype, doc="The type of keys and values.")
    masks = property(
        lambda self: self._masks, doc="Of this forward; give them to its other caches."
    )
    backend = property(lambda self: self._backend, doc="'torch', 'cpu' or 'triton'.")
    attention = property(lambda self: self._kernels.name, doc="The kernel that reads attend with.")

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one position's keys and values, all heads."""
        return self.kv_heads * (self.key_dim + self.value_dim) * self._dtype.itemsize

    @classmethod
    def scores(cls) -> str:
        """How scores are made. Keys and values of a model's later layers depend on it, and `signature` does not."""
        return cls.SCORES

    @property
    def signature(self) -> str:
        """What the stored bytes mean. Caches of one signature can load each other's state."""
        heads = f"kv {self.kv_heads} key {self.key_dim} value {self.value_dim}"
        seen = f"window {self.window or 'full'}, sinks {self.sinks}, chunk {self.chunk or 'none'}"
        return f"kvgen 1, {heads}, {self._dtype}, {seen}, {self.STORED}"
