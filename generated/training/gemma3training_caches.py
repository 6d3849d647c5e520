# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 0ef29decab66 codegen 1
"""Gemma3TrainingCaches: the caches of 26 layers.

    model Gemma3Training {  # training.kv:56
        layers 26
        repeat Gemma3LocalTraining * 5, Gemma3GlobalTraining
    }

Layer i uses entry i of the repeated pattern.
"""

from __future__ import annotations

from ._models import ModelCaches
from .gemma3globaltraining_cache import Gemma3GlobalTrainingCache
from .gemma3localtraining_cache import Gemma3LocalTrainingCache


class Gemma3TrainingCaches(ModelCaches):
    """One cache for each layer of Gemma3Training; see `ModelCaches` for what can be done with them."""

    LAYERS = 26
    PATTERN = (
        (Gemma3LocalTrainingCache, 5),
        (Gemma3GlobalTrainingCache, 1),
    )
    DONORS = {}
