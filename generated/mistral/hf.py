# Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
# kvgen: mistral.kv source 0d21d37929f3 body dc3ecc910eeb codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=MistralHFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .mistral_caches import MistralCaches

__all__ = [
    "MistralHFCache",
]

FACTS = (
    Facts(  # Sliding
        query_heads=32,
        kv_heads=8,
        key_dim=128,
        value_dim=128,
        scale=0.08838834764831845,
        softcap=None,
        sink_logits=False,
        window=4096,
        chunk=None,
        sinks=0,
        ring=4103,
        trimmable=True,
        stateless=False,
    ),
)


class MistralHFCache(ModelCache):
    """32 layers of Sliding."""

    CACHES = MistralCaches
    LAYERS = repeated(
        32,
        (1, FACTS[0]),  # Sliding
    )
    DONORS = {}
