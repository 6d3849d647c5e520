# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body c068bb0a6746 codegen 1
"""The attention caches of smollm2.kv."""

from .full_cache import FullCache
from .smollm2_caches import SmolLM2Caches
from .smollm2window_caches import SmolLM2WindowCaches
from .windowed_cache import WindowedCache

__all__ = [
    "FullCache",
    "SmolLM2Caches",
    "SmolLM2WindowCaches",
    "WindowedCache",
]
