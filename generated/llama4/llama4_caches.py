# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body 20850d96b4ce codegen 1
"""Llama4Caches: the caches of 48 layers.

    model Llama4 {  # llama4.kv:27
        layers 48
        repeat Chunked * 3, Full
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .chunked_cache import ChunkedCache
from .full_cache import FullCache


class Llama4Caches(ModelCaches):
    """One cache for each layer of Llama4; see `ModelCaches` for what can be done with them."""

    LAYERS = 48
    PATTERN = (
        (ChunkedCache, 3),
        (FullCache, 1),
    )
    DONORS = {}
