# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 7980285c60fe codegen 1
"""The attention caches of training.kv."""

from .gemma3globaltraining_cache import Gemma3GlobalTrainingCache
from .gemma3localtraining_cache import Gemma3LocalTrainingCache
from .gemma3training_caches import Gemma3TrainingCaches
from .gptossfulltraining_cache import GptOssFullTrainingCache
from .gptossslidingtraining_cache import GptOssSlidingTrainingCache
from .llama4chunkedtraining_cache import Llama4ChunkedTrainingCache
from .mistraltraining7b_caches import MistralTraining7BCaches
from .mistraltraining_cache import MistralTrainingCache

__all__ = [
    "Gemma3GlobalTrainingCache",
    "Gemma3LocalTrainingCache",
    "Gemma3TrainingCaches",
    "GptOssFullTrainingCache",
    "GptOssSlidingTrainingCache",
    "Llama4ChunkedTrainingCache",
    "MistralTraining7BCaches",
    "MistralTrainingCache",
]
