# Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
# kvgen: llama.kv source 8972495ac203 body ac85cf1d9f6d codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=LlamaHFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .llama_caches import LlamaCaches

__all__ = [
    "LlamaHFCache",
]

FACTS = (
    Facts(  # Full
        query_heads=32,
        kv_heads=8,
        key_dim=128,
        value_dim=128,
        scale=0.08838834764831845,
        softcap=None,
        sink_logits=False,
        window=None,
        chunk=None,
        sinks=0,
        ring=None,
        trimmable=True,
        stateless=False,
    ),
)


class LlamaHFCache(ModelCache):
    """32 layers of Full."""

    CACHES = LlamaCaches
    LAYERS = repeated(
        32,
        (1, FACTS[0]),  # Full
    )
    DONORS = {}
