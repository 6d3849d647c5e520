# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body 2e4b2a475392 codegen 1
"""Gemma3nCaches: the caches of 30 layers.

    model Gemma3n {  # gemma3n.kv:26
        layers 30
        repeat Local * 4, Global
        share 20 from 18
        share 21 from 18
        share 22 from 18
        share 23 from 18
        share 24 from 19
        share 25 from 18
        share 26 from 18
        share 27 from 18
        share 28 from 18
        share 29 from 19
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .global_cache import GlobalCache
from .local_cache import LocalCache


class Gemma3nCaches(ModelCaches):
    """One cache for each layer of Gemma3n; see `ModelCaches` for what can be done with them."""

    LAYERS = 30
    PATTERN = (
        (LocalCache, 4),
        (GlobalCache, 1),
    )
    DONORS = {20: 18, 21: 18, 22: 18, 23: 18, 24: 19, 25: 18, 26: 18, 27: 18, 28: 18, 29: 19}
