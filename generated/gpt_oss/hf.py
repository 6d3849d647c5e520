# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body b8c32f766be0 codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=GptOssHFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from .gptoss_caches import GptOssCaches

__all__ = [
    "GptOssHFCache",
]

FACTS = (
    Facts(  # Sliding
        query_heads=64,
        kv_heads=8,
        key_dim=64,
        value_dim=64,
        scale=0.125,
        softcap=None,
        sink_logits=True,
        window=128,
        chunk=None,
        sinks=0,
        ring=135,
        trimmable=True,
        stateless=False,
    ),
    Facts(  # Full
        query_heads=64,
        kv_heads=8,
        key_dim=64,
        value_dim=64,
        scale=0.125,
        softcap=None,
        sink_logits=True,
        window=None,
        chunk=None,
        sinks=0,
        ring=None,
        trimmable=True,
        stateless=False,
    ),
)


class GptOssHFCache(ModelCache):
    """24 layers of Sliding, Full."""

    CACHES = GptOssCaches
    LAYERS = repeated(
        24,
        (1, FACTS[0]),  # Sliding
        (1, FACTS[1]),  # Full
    )
    DONORS = {}
