# Written by kvgen from streaming.kv and yours to keep: kvgen claims no right to it. Edit streaming.kv.
# kvgen: streaming.kv source e0ad27c66182 body 23eafb5f32d7 codegen 1
"""The attention caches of streaming.kv."""

from .llama2streaming_caches import Llama2StreamingCaches
from .streaming_cache import StreamingCache

__all__ = [
    "Llama2StreamingCaches",
    "StreamingCache",
]
