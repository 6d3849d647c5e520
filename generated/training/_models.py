# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 4949dd6db9a9 codegen 1
"""The caches of a whole model, acted on as one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import torch

from ._masks import Masks


class ModelCaches:
    """One cache for each layer that owns its keys and values. All are asked before one is changed."""

    LAYERS: int
    PATTERN: tuple[tuple[Any, int], ...]  # (cache class, layers in a row), repeated
    DONORS: dict[int, int]  # layers that read another layer's keys and values

    def __init__(
        self,
        batch_size: int,
        *,
        device: Any = "cpu",
        dtype: torch.dtype | None = None,
        backend: str = "auto",
        masks: Masks | None = None,
        row_lengths: Any = None,
        capacity: int | None = None,
    ) -> None:
        """The arguments of the layers' caches. `capacity` goes to the layers whose policy leaves it open, `row_lengths`
        to stateless ones."""
        kinds = [kind for kind, _ in self.PATTERN]
        if capacity is not None and not any(kind.OPEN_CAPACITY for kind in kinds):
            raise ValueError(
                f"capacity must be left out, got {capacity!r}: no policy of this model leaves it open"
            )
        if row_lengths is not None and not any(kind.STATELESS for kind in kinds):
            raise ValueError(
                "row_lengths belongs to models with stateless policies; use prepare_prefill"
            )
        options = {"device": device, "dtype": dtype, "backend": backend}
        self.layers: list[Any] = []
        for layer in range(self.LAYERS):
            if layer in self.DONORS:
                self.layers.append(self.layers[self.DONORS[layer]])
                continue
            kind = self._kind(layer)
            cache = kind(
                batch_size,
                masks=masks,
                capacity=capacity if kind.OPEN_CAPACITY else None,
                row_lengths=row_lengths if kind.STATELESS else None,
                **options,
            )
            masks = cache.masks
            self.layers.append(cache)
        self.donors = tuple(self.DONORS.get(layer, layer) for layer in range(self.LAYERS))

    @classmethod
    def _kind(cls, layer: int) -> Any:
        """The cache class of a layer."""
        index = layer % sum(count for _, count in cls.PATTERN)
        for kind, count in cls.PATTERN:
            if index < count:
                return kind
            index -= count
        raise IndexError(layer)

    @property
    def _owners(self) -> list[int]:
        """The layers that own their keys and values."""
        return [layer for layer, donor in enumerate(self.donors) if layer == donor]

    @property
    def _caches(self) -> list[Any]:
        return [self.layers[layer] for layer in self._owners]

    batch_size = property(lambda self: self.layers[0].batch_size, doc="Rows.")
    masks = property(lambda self: self.layers[0].masks, doc="Shared by all layers.")
    offsets = property(lambda self: self.layers[0].offsets, doc="The next position of each row.")
    offset = property(lambda self: self.layers[0].offset, doc="The largest of `offsets`.")
    nbytes = property(
        lambda self: sum(cache.nbytes for cache in self._caches), doc="Bytes of all layers."
    )

    @property
    def signature(self) -> str:
        """The layers' signatures, runs of one written once, and who reads whose."""
        shared = [f"{layer} from {donor}" for layer, donor in sorted(self.DONORS.items())]
        return "; ".join([*in_runs(cache.signature for cache in self._caches), *shared])

    @classmethod
    def scores(cls) -> str:
        """How the layers' scores are made, runs of one written once."""
        return "; ".join(in_runs(cls._kind(layer).SCORES for layer in range(cls.LAYERS)))

    def positions(self, columns: int) -> torch.Tensor:
        """int64 [B, columns]: the positions of the next columns, the same for every layer; 0 at padding."""
        return self.layers[0].positions(columns)

    # -- padding and trimming

    def prepare_prefill(self, lengths: Any, left_padding: Any = None) -> None:
        """See the layers' caches."""
        for cache in self._caches:
            cache._check_prefill(lengths, left_padding)
        for cache in self._caches:
            cache.prepare_prefill(lengths, left_padding)

    def finalize_prefill(self) -> None:
        for cache in self._caches:
            cache.finalize_prefill()

    def is_trimmable(self, n: Any = 1) -> bool:
        """Whether every layer can take back the last n tokens of each row."""
        return all(cache.is_trimmable(n) for cache in self._caches)

    def trim(self, n: Any, bypass: bool = False) -> None:
        """Drop the last n tokens of each row in every layer, or in none. `bypass` is for layers that declare it; the
        others are asked."""
        for cache in self._caches:
            cache._settled("trim")
            cache._check_trim(n, bypass and cache.bypass_tokens > 0)
        for cache in self._caches:
            cache.trim(n, bypass and cache.bypass_tokens > 0)

    # -- rows

    def filter_rows(self, rows: Any) -> None:
        """Keep these rows, in this order, in every layer."""
        for cache in self._caches:
            cache._row_numbers(rows, "filter_rows")
        for cache in self._caches:
            cache.filter_rows(rows)

    def extract_row(self, row: int) -> Any:
        """An independent model's caches of one row."""
        return self._of([cache.extract_row(row) for cache in self._caches])

    @classmethod
    def merge_rows(cls, models: Any) -> Any:
        """The rows of all `models`, layer by layer. They stay as they are."""
        listed = models if isinstance(models, (list, tuple)) else []
        if not listed or any(type(model) is not cls for model in listed):
            got = [type(model).__name__ for model in listed] or type(models).__name__
            raise ValueError(f"merge_rows takes a list of {cls.__name__}, one or more, got {got}")
        layers = zip(*(model._caches for model in models))
        return models[0]._of([type(caches[0]).merge_rows(caches) for caches in layers])

    def clone(self, lazy: bool = False) -> Any:
        """An independent copy of every layer. `lazy`: a layer is copied when it is written, here or there."""
        other = self._of([cache.clone(lazy) for cache in self._caches])
        for cache in other._caches:
            cache._masks = other.masks
        return other

    def reset(self) -> None:
        """Forget all tokens of every layer."""
        for cache in self._caches:
            cache.reset()

    def _of(self, caches: list[Any]) -> Any:
        """Such a model with these caches in the layers that own theirs."""
        owned = dict(zip(self._owners, caches))
        other = object.__new__(type(self))
        other.donors, other.layers = self.donors, [owned[donor] for donor in self.donors]
        return other

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """An independent snapshot of all layers: flat, "3.keys" is layer 3's keys."""
        entries = {
            f"{layer}.{name}": value
            for layer in self._owners
            for name, value in self.layers[layer].state_dict().items()
        }
        return {"signature": self.signature, **entries}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what was saved, every layer or none; ValueError for a state of another model or batch size."""
        parts = self._parts(state)
        for layer in self._owners:
            self.layers[layer]._settled("load_state_dict")
        checked = [self.layers[layer]._check_state(parts[layer]) for layer in self._owners]
        for layer, new in zip(self._owners, checked):
            self.layers[layer]._adopt(parts[layer], new)

    def _parts(self, state: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The state of each layer."""
        if not isinstance(state, dict) or state.get("signature") != self.signature:
            got = state.get("signature") if isinstance(state, dict) else f"a {type(state).__name__}"
            raise ValueError(
                f"the state is of {got!r}, these caches are {self.signature!r};"
                " load it into caches of the model and dtype that saved it"
            )
        parts: dict[int, dict[str, Any]] = {layer: {} for layer in self._owners}
        for key, value in state.items():
            layer, _, name = str(key).partition(".")
            if key == "signature":
                continue
            if not layer.isdecimal() or int(layer) not in parts:
                raise ValueError(
                    f"the state has an entry {key!r} that belongs to no layer of this model;"
                    " give what state_dict() returned"
                )
            parts[int(layer)][name] = value
        return parts

    def __getstate__(self) -> dict[str, Any]:
        return {"donors": self.donors, "caches": [cache.__getstate__() for cache in self._caches]}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.donors = fields["donors"]
        owned: dict[int, Any] = {}
        masks = Masks()
        for layer, state in zip(self._owners, fields["caches"]):
            owned[layer] = object.__new__(self._kind(layer))
            owned[layer].__setstate__(state)
            owned[layer]._masks = masks
        self.layers = [owned[donor] for donor in self.donors]

    def to(self, device: Any) -> Any:
        """Move every layer to a device, in place; returns the caches."""
        for cache in self._caches:
            cache.to(device)
        return self

    def sync(self) -> None:
        """Bring the host's view up to date after replays of a captured graph."""
        for cache in self._caches:
            cache.sync()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.LAYERS} layers, rows at {list(self.offsets)}, {self.nbytes:,} bytes)"


def in_runs(texts: Iterable[str]) -> list[str]:
    """Equal neighbours written once, with their number."""
    return [f"{len(list(alike))} x {text}" for text, alike in groupby(texts)]
