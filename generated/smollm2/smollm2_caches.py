# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body d226d0941054 codegen 1
"""SmolLM2Caches: the caches of 30 layers.

    model SmolLM2 {  # smollm2.kv:27
        layers 30
        repeat Full
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .full_cache import FullCache


class SmolLM2Caches(ModelCaches):
    """One cache for each layer of SmolLM2; see `ModelCaches` for what can be done with them."""

    LAYERS = 30
    PATTERN = ((FullCache, 1),)
    DONORS = {}
