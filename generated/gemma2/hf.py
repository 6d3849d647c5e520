# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body d233590732e1 codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=Gemma2HFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .gemma2_caches import Gemma2Caches

__all__ = [
    "Gemma2HFCache",
]

FACTS = (
    Facts(  # Local
        query_heads=32,
        kv_heads=16,
        key_dim=128,
        value_dim=128,
        scale=0.08333333333333333,
        softcap=50.0,
        sink_logits=False,
        window=4096,
        chunk=None,
        sinks=0,
        ring=4103,
        trimmable=True,
        stateless=False,
    ),
    Facts(  # Global
        query_heads=32,
        kv_heads=16,
        key_dim=128,
        value_dim=128,
        scale=0.08333333333333333,
        softcap=50.0,
        sink_logits=False,
        window=None,
        chunk=None,
        sinks=0,
        ring=None,
        trimmable=True,
        stateless=False,
    ),
)


class Gemma2HFCache(ModelCache):
    """46 layers of Local, Global."""

    CACHES = Gemma2Caches
    LAYERS = repeated(
        46,
        (1, FACTS[0]),  # Local
        (1, FACTS[1]),  # Global
    )
    DONORS = {}
