# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body b44c56493d8f codegen 1
"""MistralTraining7BCaches: the caches of 32 layers.

    model MistralTraining7B {  # training.kv:51
        layers 32
        repeat MistralTraining
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .mistraltraining_cache import MistralTrainingCache


class MistralTraining7BCaches(ModelCaches):
    """One cache for each layer of MistralTraining7B; see `ModelCaches` for what can be done with them."""

    LAYERS = 32
    PATTERN = ((MistralTrainingCache, 1),)
    DONORS = {}
