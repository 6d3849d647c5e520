# Written by kvgen from smollm2.kv and yours to keep: kvgen claims no right to it. Edit smollm2.kv.
# kvgen: smollm2.kv source 4545e14289df body ed05ce8cce6b codegen 1
"""SmolLM2WindowCaches: the caches of 30 layers.

    model SmolLM2Window {  # smollm2.kv:32
        layers 30
        repeat Windowed
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .windowed_cache import WindowedCache


class SmolLM2WindowCaches(ModelCaches):
    """One cache for each layer of SmolLM2Window; see `ModelCaches` for what can be done with them."""

    LAYERS = 30
    PATTERN = ((WindowedCache, 1),)
    DONORS = {}
