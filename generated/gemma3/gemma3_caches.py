# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body fc889f5f5a08 codegen 1
"""Gemma3Caches: the caches of 26 layers.

    model Gemma3 {  # gemma3.kv:26
        layers 26
        repeat Local * 5, Global
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .global_cache import GlobalCache
from .local_cache import LocalCache


class Gemma3Caches(ModelCaches):
    """One cache for each layer of Gemma3; see `ModelCaches` for what can be done with them."""

    LAYERS = 26
    PATTERN = (
        (LocalCache, 5),
        (GlobalCache, 1),
    )
    DONORS = {}
