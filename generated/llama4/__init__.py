# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body 90ea7b01a9d0 codegen 1
"""The attention caches of llama4.kv."""

from .chunked_cache import ChunkedCache
from .full_cache import FullCache
from .llama4_caches import Llama4Caches

__all__ = [
    "ChunkedCache",
    "FullCache",
    "Llama4Caches",
]
