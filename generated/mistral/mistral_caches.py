# Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
# kvgen: mistral.kv source 0d21d37929f3 body 3dc3494a19e8 codegen 1
"""MistralCaches: the caches of 32 layers.

    model Mistral {  # mistral.kv:18
        layers 32
        repeat Sliding
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .sliding_cache import SlidingCache


class MistralCaches(ModelCaches):
    """One cache for each layer of Mistral; see `ModelCaches` for what can be done with them."""

    LAYERS = 32
    PATTERN = ((SlidingCache, 1),)
    DONORS = {}
