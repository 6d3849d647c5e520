# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body 2420f6b9a55b codegen 1
"""The attention caches of gemma2.kv."""

from .gemma2_caches import Gemma2Caches
from .global_cache import GlobalCache
from .local_cache import LocalCache

__all__ = [
    "Gemma2Caches",
    "GlobalCache",
    "LocalCache",
]
