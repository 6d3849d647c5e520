# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body bf8cff087c04 codegen 1
"""The layers of a model as transformers sees them."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import CacheLayerMixin

from ._hf_binding import Binding
from ._hf_fit import Facts


class Length(int):
    """A number of columns that knows which cache it was asked of."""

    kvgen: Any


class Layer(CacheLayerMixin):
    """One layer that keeps keys and values. All of it happens in the binding."""

    is_compileable = False

    def __init__(self, binding: Binding, index: int, facts: Facts) -> None:
        super().__init__()
        self.binding, self.index = binding, index
        self.is_sliding, self.is_croppable = facts.limited, facts.trimmable
        self.record_past = False

    @property
    def batch_size(self) -> int:
        """Rows; unknown, an AttributeError, before the first keys."""
        if self.binding.caches is None:
            raise AttributeError("no keys have come yet")
        return self.binding.cache(self.index).batch_size

    def lazy_initialization(self, key_states: torch.Tensor, value_states: Any = None) -> None:
        self.binding.build(key_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.binding.announce(self.index, key_states, value_states)
        self.is_initialized = True
        key_states.kvgen = self.binding
        return key_states, value_states

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        new = query_length if isinstance(query_length, int) else len(query_length)
        if new == 0:
            raise ValueError(self.binding.nothing_new())
        length = Length(self.binding.columns[self.index] + new)
        length.kvgen = self.binding
        return length, 0

    def get_seq_length(self, *_: Any) -> int:
        """Columns, padding included."""
        return self.binding.columns[self.index]

    def get_max_length(self) -> int:
        return -1 if self.binding.capacity is None else self.binding.capacity

    get_max_cache_shape = get_max_length  # its name before transformers 5

    def activate_past_recording(self) -> None:
        """Tokens will be taken back: keep what a short ring would lose of the next append."""
        self.record_past = True

    @property
    def record_past(self) -> bool:
        return self.binding.recording[self.index]

    @record_past.setter
    def record_past(self, on: bool) -> None:
        self.binding.recording[self.index] = on

    def crop(self, tokens_to_remove: int) -> None:
        """Drop -tokens_to_remove columns; above 0: how many to keep, as before transformers 5."""
        self.binding.crop(self.index, self.binding.crop_size(self.index, tokens_to_remove))

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.binding.select(self.index, beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        rows = range(self.batch_size) if self.binding.caches is not None else ()
        self.binding.select(self.index, [row for row in rows for _ in range(repeats)])

    def batch_select_indices(self, indices: Any) -> None:
        if isinstance(indices, torch.Tensor):
            indices = indices.nonzero()[:, 0] if indices.dtype is torch.bool else indices
            indices = indices.tolist()
        self.binding.select(self.index, list(indices))

    def reset(self) -> None:
        self.binding.reset(self.index)

    def offload(self) -> None:
        raise RuntimeError(
            "kvgen caches stay on their device: pass no cache_implementation='offloaded'"
        )

    prefetch = offload


class SharingLayer(Layer):
    """A layer that reads another's keys and values: nothing is stored for it, and nothing to change."""

    def _nothing(self, *_: Any) -> None:
        """The donor's layer does it."""

    lazy_initialization = crop = reorder_cache = reset = _nothing
    batch_repeat_interleave = batch_select_indices = _nothing

    def get_seq_length(self, *_: Any) -> int:
        return self.binding.columns[self.binding.donors[self.index]]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        donor = self.binding.donors[self.index]
        return Layer(self.binding, donor, self.binding.layers[donor]).get_mask_sizes(query_length)
