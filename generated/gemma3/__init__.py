# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body 6345e9f295fe codegen 1
"""The attention caches of gemma3.kv."""

from .gemma3_caches import Gemma3Caches
from .global_cache import GlobalCache
from .local_cache import LocalCache

__all__ = [
    "Gemma3Caches",
    "GlobalCache",
    "LocalCache",
]
