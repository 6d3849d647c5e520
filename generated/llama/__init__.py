# Written by kvgen from llama.kv and yours to keep: kvgen claims no right to it. Edit llama.kv.
# kvgen: llama.kv source 8972495ac203 body 8c3936d13150 codegen 1
"""The attention caches of llama.kv."""

from .full_cache import FullCache
from .llama_caches import LlamaCaches

__all__ = [
    "FullCache",
    "LlamaCaches",
]
