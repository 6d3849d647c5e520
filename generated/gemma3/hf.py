# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body b23a2a0f6691 codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=Gemma3HFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .gemma3_caches import Gemma3Caches

__all__ = [
    "Gemma3HFCache",
]

FACTS = (
    Facts(  # Local
        query_heads=4,
        kv_heads=1,
        key_dim=256,
        value_dim=256,
        scale=0.0625,
        softcap=None,
        sink_logits=False,
        window=512,
        chunk=None,
        sinks=0,
        ring=519,
        trimmable=True,
        stateless=False,
    ),
    Facts(  # Global
        query_heads=4,
        kv_heads=1,
        key_dim=256,
        value_dim=256,
        scale=0.0625,
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


class Gemma3HFCache(ModelCache):
    """26 layers of Local * 5, Global."""

    CACHES = Gemma3Caches
    LAYERS = repeated(
        26,
        (5, FACTS[0]),  # Local
        (1, FACTS[1]),  # Global
    )
    DONORS = {}
