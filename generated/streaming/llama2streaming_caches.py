# Written by kvgen from streaming.kv and yours to keep: kvgen claims no right to it. Edit streaming.kv.
# kvgen: streaming.kv source e0ad27c66182 body 4a4123121407 codegen 1
"""Llama2StreamingCaches: the caches of 32 layers.

    model Llama2Streaming {  # streaming.kv:19
        layers 32
        repeat Streaming
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .streaming_cache import StreamingCache


class Llama2StreamingCaches(ModelCaches):
    """One cache for each layer of Llama2Streaming; see `ModelCaches` for what can be done with them."""

    LAYERS = 32
    PATTERN = ((StreamingCache, 1),)
    DONORS = {}
