# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body 83a6e38e400f codegen 1
"""Gemma2Caches: the caches of 46 layers.

    model Gemma2 {  # gemma2.kv:26
        layers 46
        repeat Local, Global
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .global_cache import GlobalCache
from .local_cache import LocalCache


class Gemma2Caches(ModelCaches):
    """One cache for each layer of Gemma2; see `ModelCaches` for what can be done with them."""

    LAYERS = 46
    PATTERN = (
        (LocalCache, 1),
        (GlobalCache, 1),
    )
    DONORS = {}
