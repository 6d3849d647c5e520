# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body 05f92e56d2c9 codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=SmolLM2HFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .smollm2_caches import SmolLM2Caches
from .smollm2window_caches import SmolLM2WindowCaches

__all__ = [
    "SmolLM2HFCache",
    "SmolLM2WindowHFCache",
]

FACTS = (
    Facts(  # Full
        query_heads=9,
        kv_heads=3,
        key_dim=64,
        value_dim=64,
        scale=0.125,
        softcap=None,
        sink_logits=False,
        window=None,
        chunk=None,
        sinks=0,
        ring=None,
        trimmable=True,
        stateless=False,
    ),
    Facts(  # Windowed
        query_heads=9,
        kv_heads=3,
        key_dim=64,
        value_dim=64,
        scale=0.125,
        softcap=None,
        sink_logits=False,
        window=256,
        chunk=None,
        sinks=4,
        ring=263,
        trimmable=True,
        stateless=False,
    ),
)


class SmolLM2HFCache(ModelCache):
    """30 layers of Full."""

    CACHES = SmolLM2Caches
    LAYERS = repeated(
        30,
        (1, FACTS[0]),  # Full
    )
    DONORS = {}


class SmolLM2WindowHFCache(ModelCache):
    """30 layers of Windowed."""

    CACHES = SmolLM2WindowCaches
    LAYERS = repeated(
        30,
        (1, FACTS[1]),  # Windowed
    )
    DONORS = {}
