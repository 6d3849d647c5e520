# Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
# kvgen: llama.kv source 8972495ac203 body 4ff06d9c5c6c codegen 1
"""A model's cache as transformers takes it."""

from __future__ import annotations

import copy
from typing import Any

from transformers import Cache

from . import _hf  # noqa: F401 - registers the attention `kvgen`
from ._hf_binding import Binding
from ._hf_fit import Facts, check_config
from ._hf_layers import Layer, SharingLayer


class ModelCache(Cache):
    """What every model's class of this package is. It adds `CACHES`, `LAYERS` and `DONORS`.

    `config`: the model's, refused with a ValueError that names the field if heads, dims, scores,
    windows, layer pattern or sharing disagree with the policies. Without it the first forward
    compares what it can see, and a model that sees everything may be run on windows: its cache is
    bounded then, and its logits are others. `backend`, `capacity`: as in every cache. Batch, device
    and dtype follow the first keys.
    """

    BINDING: type = Binding

    CACHES: type
    LAYERS: tuple[Facts, ...]
    DONORS: dict[int, int]

    def __init__(
        self, config: Any = None, *, backend: str = "auto", capacity: int | None = None
    ) -> None:
        name = type(self).__name__
        if config is not None:
            check_config(name, config, self.LAYERS, self.DONORS)
        self.binding = self.BINDING(
            name, self.CACHES, self.LAYERS, self.DONORS, backend, capacity, config is not None
        )
        super().__init__(
            layers=[
                (SharingLayer if i in self.DONORS else Layer)(self.binding, i, facts)
                for i, facts in enumerate(self.LAYERS)
            ]
        )

    @property
    def caches(self) -> Any:
        """The package's own caches, None before the first keys."""
        return self.binding.caches

    @property
    def device(self) -> Any:
        """Where keys and values are, None before the first."""
        return None if self.caches is None else self.caches.layers[0].device

    @property
    def nbytes(self) -> int:
        """Bytes of stored keys and values."""
        return 0 if self.caches is None else self.caches.nbytes

    @property
    def offsets(self) -> tuple[int, ...]:
        """The tokens of each row so far, padding not counted."""
        return () if self.caches is None else tuple(self.caches.offsets)

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Any, Any]:
        """A layer's new keys and values, as they came: they are stored when they are attended."""
        return self.layers[layer_idx].update(key_states, value_states)

    def crop(self, tokens_to_remove: int) -> None:
        """Drop -tokens_to_remove columns of every layer; RuntimeError, and none, if one cannot."""
        owners = [layer.index for layer in self.layers if not isinstance(layer, SharingLayer)]
        sizes = {i: self.binding.crop_size(i, tokens_to_remove) for i in owners}
        for i, size in sizes.items():
            self.binding.check_crop(i, size)
        for i, size in sizes.items():
            self.binding.crop(i, size)

    @property
    def _is_user_defined(self) -> bool:
        return True

    @_is_user_defined.setter
    def _is_user_defined(self, _: bool) -> None:
        """`generate` says so of a cache that it is given, before it uses it."""
        if self.binding.STATELESS:
            raise RuntimeError(self.binding.stores_nothing())

    # -- what the package's own caches offer too, for prompts that are kept

    @property
    def signature(self) -> str:
        """What the stored bytes mean; known from the first keys on."""
        return "" if self.caches is None else self.caches.signature

    def scores(self) -> str:
        """How the layers' scores are made."""
        return self.CACHES.scores()

    def clone(self, lazy: bool = False) -> ModelCache:
        """An independent copy. `lazy`: keys and values are copied when they are written, here or there."""
        if self.caches is None:
            return copy.deepcopy(self)
        return copy.deepcopy(self, {id(self.caches): self.caches.clone(lazy)})

    def is_trimmable(self, n: int = 1) -> bool:
        """Whether the last n columns can go as if they had never come."""
        return all(self.binding.can_crop(i, n) for i in self.binding.owners)

    def trim(self, n: int) -> None:
        """Drop the last n columns, as `crop(-n)` does."""
        if n < 0:
            raise ValueError(f"n must be 0 or more, got {n}")
        self.crop(-n)

    def state_dict(self) -> dict[str, Any]:
        """An independent snapshot: the package's, and the columns that transformers counts."""
        if self.caches is None:
            raise RuntimeError(
                f"this {type(self).__name__} has seen no keys: there is nothing to save"
            )
        columns = self.binding.columns[self.binding.owners[0]]
        padded = int(self.binding.right_padded)
        return {**self.caches.state_dict(), "columns": columns, "right_padded": padded}

    def load_state_dict(self, state: dict[str, Any], device: Any = None) -> None:
        """Become what was saved; ValueError, and nothing changes, for a state of another model.

        `device`: where to, by default where this cache is already, else the CPU.
        """
        parts = dict(state)
        columns, padded = parts.pop("columns", None), parts.pop("right_padded", None)
        first = self.binding.owners[0]
        offsets, keys = parts.get(f"{first}.offsets"), parts.get(f"{first}.keys")
        if not isinstance(columns, int) or padded not in (0, 1) or offsets is None or keys is None:
            raise ValueError(
                f"the state is not of a {type(self).__name__}: use its own state_dict()"
            )
        device = device or self.device or "cpu"
        caches = self.CACHES(
            len(offsets), device=device, dtype=keys.dtype, backend=self.binding.backend
        )
        caches.load_state_dict(parts)
        if columns < max(caches.offsets):
            raise ValueError(f"the state has {columns} columns and rows of {caches.offsets} tokens")
        self.reset()
        self.binding.hold(caches)
        self.binding.right_padded = bool(padded)
        for i in self.binding.owners:
            self.binding.columns[i] = columns

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.caches!r})"
