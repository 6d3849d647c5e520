# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 6a64d29530e3 codegen 1
"""The attention caches of gpt_oss.kv."""

from .full_cache import FullCache
from .gptoss_caches import GptOssCaches
from .sliding_cache import SlidingCache

__all__ = [
    "FullCache",
    "GptOssCaches",
    "SlidingCache",
]
