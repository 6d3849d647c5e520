# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body 6d48546d175e codegen 1
"""The attention function and the mask function that transformers calls for this package's caches.

A layer of a model does `k, v = cache.update(k, v, layer)`, then `attention(module, q, k, v, mask)`.
Here `update` only checks and hands both back; the attention function has the padding too, from the
mask, so it appends and attends. The mask function returns the 2-D mask it was given as [B, 1, 1,
columns], so that models may slice it as one of their own. The attention function finds its cache
through an attribute of the keys, or, where a layer has no cache because gradient checkpointing took
it, of the mask: `get_mask_sizes` hands the mask function its `Binding`, on the length it returns.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from ._hf_fit import NAME, Call


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sliding_window: int | None = None,
    position_ids: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """q [B, Hq, L, Dk], k and v [B, Hkv, L, D] of the new columns, to [B, L, Hq, Dv] and no weights."""
    binding = getattr(key, NAME, None) or getattr(attention_mask, NAME, None)
    if binding is None:
        raise RuntimeError(
            "attention 'kvgen' found no cache of a kvgen package: pass one, as "
            "cache=...HFCache(model.config) (past_key_values= before transformers 5.24), with a "
            "2-D attention_mask or none; for a forward without a cache call "
            "model.set_attn_implementation('sdpa') first; of a model that sees images give it to "
            "the language model only: model.set_attn_implementation({'text_config': 'kvgen'})"
        )
    if dropout:
        raise ValueError(
            f"kvgen caches attend without dropout, got dropout={dropout}; set attention_dropout to "
            "0"
        )
    call = scaling, softcap, s_aux, sliding_window
    out = binding.step(module.layer_idx, query, key, value, attention_mask, call)
    if out is None:
        call = Call(*call, position_ids)
        out = binding.attend(module, query, key, value, attention_mask, call)
    return out.transpose(1, 2).contiguous(), None


def mask_of_columns(
    *,
    kv_length: int,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    use_vmap: bool = False,
    device: Any = None,
    **others: Any,
) -> torch.Tensor | None:
    """[B, 1, 1, columns] of the 2-D mask as it came; None, or an empty one, if there is no padding."""
    binding = getattr(kv_length, NAME, None)
    packed = use_vmap or not allow_is_causal_skip  # may be said of any forward without a cache
    if "allow_is_bidirectional_skip" in others or (packed and binding is not None):
        raise ValueError(
            "kvgen caches are causal within their policy: masks that are bidirectional, packed or "
            "combined with another rule (image tokens, prefix tuning) need another attention "
            "implementation"
        )
    if attention_mask is not None:
        mask = attention_mask[:, None, None]
    elif binding is not None and binding.STATELESS:
        mask = torch.empty((0, 0, 0, 0), dtype=torch.bool, device=device)
    else:
        return None
    setattr(mask, NAME, binding)
    return mask


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask_of_columns)
