# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 049833b24dc0 codegen 1
"""What the layers of a transformers cache share in a model for training and scoring."""

from __future__ import annotations

from typing import Any

import torch

from ._hf_binding import Binding
from ._hf_columns import padding_of
from ._hf_fit import Call, check_tensors
from ._hf_reads import Reads


class StatelessBinding(Binding):
    """Every forward is one pass over whole rows, and nothing is kept.

    Gradient checkpointing takes the cache from the layers and runs them again; the mask still leads
    here.
    """

    STATELESS = True

    def stores_nothing(self) -> str:
        return (
            f"{self.name} is stateless: it stores nothing for the next token; generate with a "
            "model declared on stored policies"
        )

    def announce(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        check_tensors(self.name, self.layers[layer], layer, k, v)

    def attend(
        self,
        module: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        call: Call,
    ) -> torch.Tensor:
        """As in `Binding`; k and v are those of the whole rows."""
        layer = module.layer_idx
        check_tensors(self.name, self.layers[layer], layer, k, v)
        self.fit(module, layer, call)
        k.kvgen = self  # for the layers that share these keys
        k = k.to(v.dtype)  # autocast gives float32 keys
        cache = self._caches_for(k, mask).layers[layer]
        return Reads((k.shape[2], cache.append_window(k, v))).attend(q, call)

    def _caches_for(self, k: torch.Tensor, mask: torch.Tensor | None) -> Any:
        """The caches of a forward, with its padding; they live as long as its mask."""
        if mask is None or mask.numel() == 0:
            self.build(k)
            return self.caches
        if (caches := getattr(mask, "kvgen_caches", None)) is None:
            if mask.shape[-1] > k.shape[2]:
                raise RuntimeError(self.stores_nothing())
            padding = padding_of(mask[:, 0, 0], 0, k.shape[2], (0,) * k.shape[0])
            if padding is not None and any(padding.left):
                raise ValueError(
                    "a stateless cache takes right-padded batches; set padding_side='right'"
                )
            caches = self.make(
                k.shape[0],
                device=k.device,
                dtype=k.dtype,
                backend=self.backend,
                row_lengths=None if padding is None else padding.lengths,
            )
            mask.kvgen_caches = caches
        return caches

    def crop(self, layer: int, columns: int) -> None:
        """Nothing is stored."""

    check_crop = select = reset = crop

    def can_crop(self, layer: int, columns: int) -> bool:
        """There is nothing to take back."""
        return True
