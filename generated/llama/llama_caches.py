# Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
# kvgen: llama.kv source 8972495ac203 body 0a57b6081962 codegen 1
"""LlamaCaches: the caches of 32 layers.

    model Llama {  # llama.kv:16
        layers 32
        repeat Full
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .full_cache import FullCache


class LlamaCaches(ModelCaches):
    """One cache for each layer of Llama; see `ModelCaches` for what can be done with them."""

    LAYERS = 32
    PATTERN = ((FullCache, 1),)
    DONORS = {}
