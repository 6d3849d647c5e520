# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body 897b51b9fed0 codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=Llama4HFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .llama4_caches import Llama4Caches

__all__ = [
    "Llama4HFCache",
]

FACTS = (
    Facts(  # Chunked
        query_heads=40,
        kv_heads=8,
        key_dim=128,
        value_dim=128,
        scale=0.08838834764831845,
        softcap=None,
        sink_logits=False,
        window=None,
        chunk=8192,
        sinks=0,
        ring=8199,
        trimmable=True,
        stateless=False,
    ),
    Facts(  # Full
        query_heads=40,
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


class Llama4HFCache(ModelCache):
    """48 layers of Chunked * 3, Full."""

    CACHES = Llama4Caches
    LAYERS = repeated(
        48,
        (3, FACTS[0]),  # Chunked
        (1, FACTS[1]),  # Full
    )
    DONORS = {}
