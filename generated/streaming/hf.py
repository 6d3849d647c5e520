# Written by kvgen from streaming.kv and yours to keep: kvgen claims no right to it. Edit streaming.kv.
# kvgen: streaming.kv source e0ad27c66182 body 26d73e167127 codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=Llama2StreamingHFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .llama2streaming_caches import Llama2StreamingCaches

__all__ = [
    "Llama2StreamingHFCache",
]

FACTS = (
    Facts(  # Streaming
        query_heads=32,
        kv_heads=32,
        key_dim=128,
        value_dim=128,
        scale=0.08838834764831845,
        softcap=None,
        sink_logits=False,
        window=2044,
        chunk=None,
        sinks=4,
        ring=2044,
        trimmable=True,
        stateless=False,
    ),
)


class Llama2StreamingHFCache(ModelCache):
    """32 layers of Streaming."""

    CACHES = Llama2StreamingCaches
    LAYERS = repeated(
        32,
        (1, FACTS[0]),  # Streaming
    )
    DONORS = {}
