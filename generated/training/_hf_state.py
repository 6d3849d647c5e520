# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body aacb019fc648 codegen 1
"""What a transformers cache holds: its package's caches, and how many columns each layer has seen."""

from __future__ import annotations

from typing import Any

import torch

from ._hf_columns import Padding
from ._hf_fit import Facts
from ._hf_reads import Reads, Step, Undo


class State:
    """Layers are numbers; a layer in `donors` stores nothing of its own."""

    STATELESS = False

    def __init__(
        self,
        name: str,
        make: Any,
        layers: tuple[Facts, ...],
        donors: dict[int, int],
        backend: str,
        capacity: int | None,
        fitted: bool,
    ) -> None:
        if any(facts.stateless is not self.STATELESS for facts in layers):
            raise ValueError(f"{name} mixes stateless and stateful policies: no forward fits both")
        self.name, self.make, self.layers, self.donors = name, make, layers, donors
        self.backend, self.capacity, self.fitted = backend, capacity, fitted
        self.owners = [i for i in range(len(layers)) if i not in donors]
        self.first, self.last = self.owners[0], self.owners[-1]
        self.last_reader = {donor: layer for layer, donor in donors.items()}
        self.caches: Any = None
        self.columns = [0] * len(layers)  # that each layer has seen, padding included
        self.recording = [False] * len(layers)
        self.right_padded = False
        self.awaiting: int | None = None  # the layer whose keys came and were not attended yet
        self.reads: dict[int, Reads] = {}  # of donors, for the layers that share them
        self.undo: dict[int, Undo] = {}
        self.steps: dict[int, Step] = {}
        self.stepping: Step | None = None  # what the step that is announced is like
        self._last_mask: Any = None  # (weak reference to a mask, columns, width), and its padding
        self._padding: Padding | None = None

    def build(self, k: torch.Tensor) -> None:
        """The package's caches for keys of this batch, dtype and device, or values: under autocast
        keys are float32 from their rotary embedding, and values of the type to compute in."""
        if self.caches is not None and self._fits(k):
            return
        if any(self.columns):
            cache = self.cache(self.first)
            raise ValueError(
                f"this {self.name} holds {cache.batch_size} rows of {cache.dtype} on "
                f"{cache.device}, and keys of {k.shape[0]} rows of {k.dtype} on {k.device} came: "
                "reset() it before another batch, or select its rows with batch_select_indices or "
                "batch_repeat_interleave"
            )
        options = {} if self.capacity is None else {"capacity": self.capacity}
        self.hold(
            self.make(k.shape[0], device=k.device, dtype=k.dtype, backend=self.backend, **options)
        )

    def hold(self, caches: Any) -> None:
        """Go on with other caches."""
        self.caches, self.steps = caches, {}

    def _fits(self, k: torch.Tensor) -> bool:
        cache = self.cache(self.first)
        return (cache.batch_size, cache.dtype, cache.device) == (k.shape[0], k.dtype, k.device)

    def cache(self, layer: int) -> Any:
        return self.caches.layers[layer]

    # -- taking columns back

    def crop_size(self, layer: int, tokens_to_remove: int) -> int:
        """How many columns a `crop` of transformers drops."""
        if tokens_to_remove <= 0:
            return -tokens_to_remove
        return max(0, self.columns[layer] - tokens_to_remove)

    def can_crop(self, layer: int, columns: int) -> bool:
        """Whether the layer's last columns can go as if they had never come."""
        if columns == 0 or self.caches is None:
            return True
        undo = self.undo.get(layer)
        kept = undo is not None and columns <= undo.columns
        return not self.right_padded and (kept or self.cache(layer).is_trimmable(columns))

    def check_crop(self, layer: int, columns: int) -> None:
        """RuntimeError unless `can_crop`."""
        if self.can_crop(layer, columns):
            return
        if self.right_padded:
            raise RuntimeError(
                "rows of this cache end in padding, so its last columns are not every row's last "
                "tokens: take tokens back row by row with `caches.trim`"
            )
        if columns > self.columns[layer]:
            raise RuntimeError(
                f"{columns} columns cannot be taken back: this {self.name} holds "
                f"{self.columns[layer]}"
            )
        raise RuntimeError(
            f"{columns} columns cannot be taken back from layer {layer}, "
            f"{self.cache(layer)!r}: what earlier queries see is overwritten; declare more "
            "slack, draft fewer tokens, or call activate_past_recording() before the append"
        )

    def crop(self, layer: int, columns: int) -> None:
        self.check_crop(layer, columns)
        undo = self.undo.pop(layer, None)
        if columns == 0 or self.caches is None:
            return
        cache = self.cache(layer)
        if cache.is_trimmable(columns):
            cache.trim(columns)
        elif undo is not None:
            undo.without(cache, columns)
        self.columns[layer] -= columns

    # -- rows

    def select(self, layer: int, rows: list[int]) -> None:
        """Keep these rows of one layer, in this order."""
        self.undo.pop(layer, None)
        if self.caches is not None and rows != list(range(self.cache(layer).batch_size)):
            self.cache(layer).filter_rows(rows)

    def reset(self, layer: int) -> None:
        if self.caches is not None:
            self.cache(layer).reset()
        self.columns[layer] = 0
        self.awaiting = self._last_mask = None
        self.right_padded = False
        self.undo.pop(layer, None)
        self.reads.pop(layer, None)

    def __getstate__(self) -> dict[str, Any]:
        """Copies begin between two forwards."""
        between = {"reads": {}, "undo": {}, "steps": {}, "stepping": None, "_last_mask": None}
        return {**self.__dict__, **between}
