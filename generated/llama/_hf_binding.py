# Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
# kvgen: llama.kv source 8972495ac203 body a7e0eaa4a52f codegen 1
"""What the layers of a transformers cache share: its package's caches, the forward that runs."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ._hf_columns import Padding, padding_of
from ._hf_fit import Call, Facts, check_call, check_sight, check_tensors, sees_everything
from ._hf_reads import UNDO, Reads, Undo, append_padded


class Binding:
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
        self.last_reader = {donor: layer for layer, donor in donors.items()}
        self.caches: Any = None
        self.columns = [0] * len(layers)  # that each layer has seen, padding included
        self.recording = [False] * len(layers)
        self.right_padded = False
        self.awaiting: int | None = None  # the layer whose keys came and were not attended yet
        self.reads: dict[int, Reads] = {}  # of donors, for the layers that share them
        self.undo: dict[int, Undo] = {}
        self._last_mask: Any = None  # (weak reference to a mask, columns, width), and its padding
        self._padding: Padding | None = None

    # -- the first half of a layer: keys and values come

    def announce(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Check what can be checked before anything is stored; build the caches at first use."""
        facts = self.layers[layer]
        if self.awaiting is not None:
            raise RuntimeError(
                f"{self.name} was given keys of layer {self.awaiting}, and they were never "
                "attended: call model.set_attn_implementation('kvgen') before the forward, then "
                "reset() the cache"
            )
        check_tensors(self.name, facts, layer, k, v)
        if layer == self.owners[0]:
            self._begin(v)
        elif self.columns[layer] + k.shape[2] != self.columns[self.owners[0]]:
            raise RuntimeError(self._out_of_step(layer))
        self.awaiting = layer

    def _begin(self, v: torch.Tensor) -> None:
        if len({self.columns[i] for i in self.owners}) > 1:
            raise RuntimeError(self._out_of_step(self.owners[-1]))
        self.build(v)

    def nothing_new(self) -> str:
        return (
            f"no new columns came: the prompt is no longer than the {self.columns[self.owners[0]]} "
            "columns that the cache holds; give all that was said so far, or reset() the cache"
        )

    def _out_of_step(self, layer: int) -> str:
        first = self.owners[0]
        return (
            f"layer {first} of this {self.name} holds {self.columns[first]} columns and layer "
            f"{layer} {self.columns[layer]}: a forward stopped midway; reset() the cache and begin "
            "again"
        )

    def build(self, k: torch.Tensor) -> None:
        """The package's caches for keys of this batch, dtype and device, or values: under autocast
        keys are float32 from their rotary embedding, and values of the type to compute in."""
        if self.caches is not None and self._fits(k):
            return
        if any(self.columns):
            cache = self.cache(self.owners[0])
            raise ValueError(
                f"this {self.name} holds {cache.batch_size} rows of {cache.dtype} on "
                f"{cache.device}, and keys of {k.shape[0]} rows of {k.dtype} on {k.device} came: "
                "reset() it before another batch, or select its rows with batch_select_indices or "
                "batch_repeat_interleave"
            )
        options = {} if self.capacity is None else {"capacity": self.capacity}
        self.caches = self.make(
            k.shape[0], device=k.device, dtype=k.dtype, backend=self.backend, **options
        )

    def _fits(self, k: torch.Tensor) -> bool:
        cache = self.cache(self.owners[0])
        return (cache.batch_size, cache.dtype, cache.device) == (k.shape[0], k.dtype, k.device)

    def cache(self, layer: int) -> Any:
        return self.caches.layers[layer]

    # -- the second half: append and attend

    def attend(
        self,
        module: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        call: Call,
    ) -> torch.Tensor:
        """q [B, Hq, L, Dk] to [B, Hq, L, Dv], once k and v are appended.

        A layer that shares its donor's attends the donor's read.
        """
        layer = module.layer_idx
        announced, self.awaiting = self.awaiting, None
        self.fit(module, layer, call)
        k = k.to(v.dtype)
        donor = self.donors.get(layer)
        if donor is None:
            self._check_announced(layer, announced)
            self._check_positions(layer, mask, k.shape[2], call.position_ids)
            reads = self._append(layer, k, v, self._padding_in(layer, mask, k.shape[2]))
            if layer in self.last_reader:
                self.reads[layer] = reads
        else:
            reads = self._shared(layer, donor)
        return reads.attend(q, call)

    def fit(self, module: Any, layer: int, call: Call) -> None:
        """Whether a layer agrees with its policy; the whole model once, if no config was given."""
        if not self.fitted:
            if not (sees_everything(module.config) and not self.donors):
                check_sight(self.name, module.config, self.layers, self.donors)
            self.fitted = True
        check_call(self.name, self.layers[layer], layer, call)

    def _check_announced(self, layer: int, announced: int | None) -> None:
        if announced != layer:
            raise RuntimeError(
                f"layer {layer} attends keys that {self.name} was never given: the model dropped "
                "its cache, as gradient checkpointing does; train with a `stateless` policy"
            )

    def _check_positions(self, layer: int, mask: Any, width: int, positions: Any) -> None:
        """Of a prompt shorter than the cache `generate` gives the wrong end: its positions tell."""
        held = self.columns[layer]
        if layer != self.owners[0] or not held or width == 1 or mask is not None:
            return
        if positions is not None and positions.dim() == 2 and int(positions[:, 0].max()) < held:
            raise ValueError(
                f"position {int(positions[:, 0].max())} comes next, and the cache holds {held} "
                "columns: the prompt is shorter than what the cache holds; give all that was said "
                "so far, or reset() the cache"
            )

    def _shared(self, layer: int, donor: int) -> Reads:
        if donor not in self.reads:
            raise RuntimeError(
                f"layer {layer} shares the keys and values of layer {donor}, which got none in "
                "this forward"
            )
        return self.reads.pop(donor) if layer == self.last_reader[donor] else self.reads[donor]

    def _padding_in(self, layer: int, mask: torch.Tensor | None, width: int) -> Padding | None:
        """The padding among the new columns, read from a mask once for all layers given it."""
        if mask is None:
            return None
        if getattr(mask, "kvgen", None) is not self:
            raise ValueError(
                f"attention_mask is {list(mask.shape)} and not from this cache's mask function: "
                "give the model a 2-D mask [rows, columns], or none"
            )
        columns, last = self.columns[layer], self._last_mask
        if last is None or last[0]() is not mask or last[1:] != (columns, width):
            self._padding = padding_of(
                mask[:, 0, 0], columns, width, tuple(self.cache(layer).offsets)
            )
            self._last_mask = weakref.ref(mask), columns, width
        return self._padding

    def _append(
        self, layer: int, k: torch.Tensor, v: torch.Tensor, padding: Padding | None
    ) -> Reads:
        cache, width = self.cache(layer), k.shape[2]
        self.undo.pop(layer, None)
        if padding is not None:
            reads = Reads((width, append_padded(cache, k, v, padding)))
        elif width == 1 and self.columns[layer]:
            reads = Reads((1, cache.append_decode(k, v)))
        elif (
            self.recording[layer] and (ring := self.layers[layer].ring) is not None and width > ring
        ):
            reads = self._append_to_be_taken_back(layer, cache, k, v, ring)
        else:
            reads = Reads((width, cache.append_window(k, v)))
        self.columns[layer] += width
        self.right_padded = padding is not None and padding.right(width)
        return reads

    def _append_to_be_taken_back(self, layer: int, cache: Any, k: Any, v: Any, ring: int) -> Reads:
        """More columns than a ring has slots, of which the last may be rejected drafts.

        A ring takes back what it was given last, up to its slots. So the columns go in two parts,
        the last as long as the ring; of a ring shorter than drafts, the state between is kept.
        """
        width = k.shape[2]
        part = min(width, max(ring, UNDO))
        early = (
            width - part,
            cache.append_window(k[:, :, : width - part], v[:, :, : width - part]),
        )
        k, v = k[:, :, width - part :], v[:, :, width - part :]
        if part > ring:
            self.undo[layer] = Undo(cache.state_dict(), k.clone(), v.clone())
        return Reads(early, (part, cache.append_window(k, v)))

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
        return {**self.__dict__, "reads": {}, "undo": {}, "_last_mask": None}
