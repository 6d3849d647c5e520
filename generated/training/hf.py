# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 94ca581106e4 codegen 1
"""The caches of this package for models of transformers.

    model.set_attn_implementation("kvgen")
    model.generate(**inputs, cache=MistralTraining7BHFCache(model.config))

The keyword is past_key_values= before transformers 5.24.
"""

from __future__ import annotations

from ._hf_cache import ModelCache
from ._hf_fit import Facts, repeated
from ._hf_stateless import StatelessBinding
from .gemma3training_caches import Gemma3TrainingCaches
from .mistraltraining7b_caches import MistralTraining7BCaches

__all__ = [
    "Gemma3TrainingHFCache",
    "MistralTraining7BHFCache",
]

FACTS = (
    Facts(  # MistralTraining
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
        ring=None,
        trimmable=True,
        stateless=True,
    ),
    Facts(  # Gemma3LocalTraining
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
        ring=None,
        trimmable=True,
        stateless=True,
    ),
    Facts(  # Gemma3GlobalTraining
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
        stateless=True,
    ),
)


class MistralTraining7BHFCache(ModelCache):
    """32 layers of MistralTraining."""

    CACHES = MistralTraining7BCaches
    BINDING = StatelessBinding
    LAYERS = repeated(
        32,
        (1, FACTS[0]),  # MistralTraining
    )
    DONORS = {}


class Gemma3TrainingHFCache(ModelCache):
    """26 layers of Gemma3LocalTraining * 5, Gemma3GlobalTraining."""

    CACHES = Gemma3TrainingCaches
    BINDING = StatelessBinding
    LAYERS = repeated(
        26,
        (5, FACTS[1]),  # Gemma3LocalTraining
        (1, FACTS[2]),  # Gemma3GlobalTraining
    )
    DONORS = {}
