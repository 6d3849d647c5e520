# Written by kvgen from mistral.kv and yours to keep: kvgen claims no right to it. Edit mistral.kv.
# kvgen: mistral.kv source 0d21d37929f3 body 6a1f2d888172 codegen 1
"""The attention caches of mistral.kv."""

from .mistral_caches import MistralCaches
from .sliding_cache import SlidingCache

__all__ = [
    "MistralCaches",
    "SlidingCache",
]
