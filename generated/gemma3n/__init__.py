# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body 208635f6ea85 codegen 1
"""The attention caches of gemma3n.kv."""

from .gemma3n_caches import Gemma3nCaches
from .global_cache import GlobalCache
from .local_cache import LocalCache

__all__ = [
    "Gemma3nCaches",
    "GlobalCache",
    "LocalCache",
]
