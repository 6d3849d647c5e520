# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body 92bc8ced2dfe codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=Gemma3nHFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .gemma3n_caches import Gemma3nCaches

__all__ = [
    "Gemma3nHFCache",
]

FACTS = (
    Facts(  # Local
        query_heads=8,
        kv_heads=2,
        key_dim=256,
        value_dim=256,
        scale=1.0,
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
        query_heads=8,
        kv_heads=2,
        key_dim=256,
        value_dim=256,
        scale=1.0,
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


class Gemma3nHFCache(ModelCache):
    """30 layers of Local * 4, Global."""

    CACHES = Gemma3nCaches
    LAYERS = repeated(
        30,
        (4, FACTS[0]),  # Local
        (1, FACTS[1]),  # Global
    )
    DONORS = {
        20: 18,
        21: 18,
        22: 18,
        23: 18,
        24: 19,
        25: 18,
        26: 18,
        27: 18,
        28: 18,
        29: 19,
    }
