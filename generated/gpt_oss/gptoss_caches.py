# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 92307a85ccfe codegen 1
"""GptOssCaches: the caches of 24 layers.

    model GptOss {  # gpt_oss.kv:25
        layers 24
        repeat Sliding, Full
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .full_cache import FullCache
from .sliding_cache import SlidingCache


class GptOssCaches(ModelCaches):
    """One cache for each layer of GptOss; see `ModelCaches` for what can be done with them."""

    LAYERS = 24
    PATTERN = (
        (SlidingCache, 1),
        (FullCache, 1),
    )
    DONORS = {}
