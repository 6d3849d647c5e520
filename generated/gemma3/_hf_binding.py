# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body c2d5179f951f codegen 1
"""What the layers of a transformers cache share: the forward that runs."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ._hf_columns import Padding, padding_of
from ._hf_fit import Call, check_call, check_sight, check_tensors, sees_everything
from ._hf_reads import UNDO, Reads, Step, Undo, append_padded
from ._hf_state import State


class Binding(State):
    """A forward calls `announce`, then `step` or `attend`, layer by layer."""

    # -- the first half of a layer: keys and values come

    def announce(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Check what can be checked before anything is stored; build the caches at first use."""
        step, self.stepping = self.steps.get(layer), None
        if step is not None and self.awaiting is None and self._continues(step, k, v):
            self.awaiting, self.stepping = layer, step
            return
        facts = self.layers[layer]
        if self.awaiting is not None:
            raise RuntimeError(
                f"{self.name} was given keys of layer {self.awaiting}, and they were never "
                "attended: call model.set_attn_implementation('kvgen') before the forward, of a "
                "model that takes its attention from transformers' AttentionInterface, then "
                "reset() the cache"
            )
        check_tensors(self.name, facts, layer, k, v)
        if layer == self.first:
            self._begin(v)
        elif self.columns[layer] + k.shape[2] != self.columns[self.first]:
            raise RuntimeError(self._out_of_step(layer))
        self.awaiting = layer

    def _continues(self, step: Step, k: torch.Tensor, v: torch.Tensor) -> bool:
        """Whether keys are of a step like the last, in a forward that no layer is missing from."""
        columns, layer = self.columns, step.layer
        ahead = columns[self.first] - columns[layer]
        in_step = ahead == 1 if layer != self.first else columns[self.last] == columns[layer]
        return in_step and k.shape == step.keys and v.shape == step.values

    def _begin(self, v: torch.Tensor) -> None:
        if len({self.columns[i] for i in self.owners}) > 1:
            raise RuntimeError(self._out_of_step(self.owners[-1]))
        self.build(v)

    def nothing_new(self) -> str:
        return (
            f"no new columns came: the prompt is no longer than the {self.columns[self.first]} "
            "columns that the cache holds; give all that was said so far, or reset() the cache"
        )

    def _out_of_step(self, layer: int) -> str:
        first = self.first
        return (
            f"layer {first} of this {self.name} holds {self.columns[first]} columns and layer "
            f"{layer} {self.columns[layer]}: a forward stopped midway; reset() the cache and begin "
            "again"
        )

    # -- the second half: append and attend

    def step(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, call: Any
    ) -> torch.Tensor | None:
        """A decode step like the layer's last, [B, Hq, 1, Dv]. None, with nothing done: another.

        `call`: scaling, softcap, sink logits and window.
        """
        step, self.stepping = self.stepping, None
        if step is None or step.layer != layer or self.undo:
            return None
        scaling, softcap, sink_logits, window = call
        if (scaling, softcap, sink_logits is None, window) != step.call or q.shape[2] != 1:
            return None
        if mask is not None and not self._unpadded(mask, self.columns[layer]):
            return None
        self.awaiting = None
        if k.dtype is not v.dtype:
            k = k.to(v.dtype)
        read = step.cache.append_decode(k, v)
        self.columns[layer] += 1
        self.right_padded = False
        return read.attend(q, scaling, False, sink_logits)

    def _unpadded(self, mask: torch.Tensor, columns: int) -> bool:
        """Whether a layer before found that a mask's new column has no padding."""
        last = self._last_mask
        seen = last is not None and last[0]() is mask and last[1:] == (columns, 1)
        return seen and self._padding is None

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
            padding = self._padding_in(layer, mask, k.shape[2])
            reads = self._append(layer, k, v, padding)
            if layer in self.last_reader:
                self.reads[layer] = reads
            elif k.shape[2] == 1 and padding is None:
                given = call.scaling, call.softcap, call.sink_logits is None, call.window
                self.steps[layer] = Step(layer, self.cache(layer), k.shape, v.shape, given)
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
                f"layer {layer} attends keys that {self.name} was never given: the model changed "
                "them after its cache had them, or dropped its cache, as gradient checkpointing "
                "does; train with a `stateless` policy"
            )

    def _check_positions(self, layer: int, mask: Any, width: int, positions: Any) -> None:
        """Of a prompt shorter than the cache `generate` gives the wrong end: its positions tell."""
        held = self.columns[layer]
        if layer != self.first or not held or width == 1 or mask is not None:
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
