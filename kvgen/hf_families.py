"""What transformers' code knows of a model beyond its `config.json`.

A config.json states what differs from its class's defaults, and those defaults live in
transformers' code. `FAMILIES` holds them for the model types that were read there: what a file may
leave out, which layers see what, how scores are scaled. Sources: configuration_*.py, modeling_*.py
and masking_utils.py of transformers 5.24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


class ConfigError(ValueError):
    """A config.json that no policy is written for: what was found, why it matters, what to do."""


def as_object(value: object) -> Mapping[str, Any] | None:
    """A JSON object; None if it is something else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def as_list(value: object) -> list[Any] | None:
    """A JSON list; None if it is something else."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def shown(value: object) -> str:
    """A value of a file in a message, cut where it is long."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True, slots=True)
class Fields:
    """The text model's fields over its family's defaults. Reading names the field that is wrong."""

    model_type: str
    values: Mapping[str, object]

    def get(self, name: str) -> object:
        return self.values.get(name)

    def count(self, name: str) -> int:
        """A whole number of 1 or more."""
        found = self.optional_count(name)
        if found is None:
            raise ConfigError(
                f"{name} is missing, and no default of model_type {self.model_type!r} is known: "
                f"the policy needs it. Add {name} to the config.json."
            )
        return found

    def optional_count(self, name: str) -> int | None:
        found = self.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise ConfigError(
                f"{name} is {shown(found)}: expected a whole number of 1 or more. Correct the "
                "config.json."
            )
        return found

    def number(self, name: str) -> float | None:
        found = self.get(name)
        if found is None:
            return None
        if (
            isinstance(found, bool)
            or not isinstance(found, (int, float))
            or not 0 < found < math.inf
        ):
            raise ConfigError(
                f"{name} is {shown(found)}: expected a number above 0. Correct the config.json."
            )
        return float(found)

    def layers(self, name: str, layers: int) -> list[Any] | None:
        """A list of one entry a layer; None when the file has none."""
        found = self.get(name)
        if not found:
            return None
        entries = as_list(found)
        if entries is None or len(entries) != layers:
            raise ConfigError(
                f"{name} must be a list of {layers} entries, one a layer, got {shown(found)}."
            )
        return entries


Kinds = Callable[[Fields, int], list[str]]
Overrides = dict[int, Mapping[str, Any]]  # the fields of layers that differ


@dataclass(frozen=True, slots=True)
class Family:
    """What transformers' code of one model type says beyond its config.json.

    `defaults`: fields a file may leave out. `kinds`: what each layer sees. `scale`: of the softmax,
    None for 1 / sqrt(head dim). `softcap`: the field that caps scores. `shares`: whether the last
    layers may read earlier ones' keys and values. `overrides`: fields of layers that differ.
    `reads`: fields without a default that decide what a query sees and are understood.
    """

    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    kinds: Kinds = lambda fields, layers: [FULL] * layers
    scale: Callable[[Fields], float | None] = lambda fields: None
    softcap: str | None = None
    sink_logits: bool = False
    shares: bool = False
    overrides: Callable[[Fields, list[str]], Overrides] = lambda fields, kinds: {}
    reads: frozenset[str] = frozenset()


# -- Which layers see what


def _typed(otherwise: Kinds) -> Kinds:
    """The file's `layer_types`; where it has none, what the model's class would have written."""
    return lambda fields, layers: fields.layers("layer_types", layers) or otherwise(fields, layers)


def _window_everywhere(fields: Fields, layers: int) -> list[str]:
    return [FULL if fields.get("sliding_window") is None else SLIDING] * layers


def _every(interval: int) -> Kinds:
    """Full attention in every `interval`-th layer, a window in the others."""

    def kinds(fields: Fields, layers: int) -> list[str]:
        step = fields.optional_count("sliding_window_pattern") or interval
        return [SLIDING if (i + 1) % step else FULL for i in range(layers)]

    return kinds


def _window_from_a_layer_on(fields: Fields, layers: int) -> list[str]:
    if not fields.get("use_sliding_window") or fields.get("sliding_window") is None:
        return [FULL] * layers
    start = fields.get("max_window_layers")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ConfigError(
            f"max_window_layers is {shown(start)}: expected the first layer with a window, 0 or "
            "more."
        )
    return [SLIDING if i >= start else FULL for i in range(layers)]


def _window_without_rope(fields: Fields, layers: int) -> list[str]:
    if not fields.get("use_sliding_window") or fields.get("sliding_window") is None:
        return [FULL] * layers
    return [FULL if rope else SLIDING for rope in _rope_layers(fields, layers)]


def _chunks_with_rope(fields: Fields, layers: int) -> list[str]:
    if fields.get("attention_chunk_size") is None:
        return [FULL] * layers
    return [CHUNKED if rope else FULL for rope in _rope_layers(fields, layers)]


def _rope_layers(fields: Fields, layers: int) -> list[Any]:
    """One true entry a layer with rotary embedding: `no_rope_layers` says the opposite."""
    step = fields.count("no_rope_layer_interval")
    return fields.layers("no_rope_layers", layers) or [(i + 1) % step for i in range(layers)]


def _last_layer_full(kinds: Kinds) -> Kinds:
    return lambda fields, layers: [*kinds(fields, layers)[:-1], FULL]


def _gemma4_global_heads(fields: Fields, kinds: list[str]) -> Overrides:
    """Gemma 4's full layers have heads of another size, and number where k and v are one."""
    heads = {"head_dim": fields.count("global_head_dim")}
    if fields.get("attention_k_eq_v") and fields.get("num_global_key_value_heads") is not None:
        heads["num_key_value_heads"] = fields.count("num_global_key_value_heads")
    return {i: heads for i, kind in enumerate(kinds) if kind == FULL}


def _per_root(name: str) -> Callable[[Fields], float | None]:
    """A scale of 1 / sqrt(the field)."""

    def scale(fields: Fields) -> float | None:
        number = fields.number(name)
        return None if number is None else number**-0.5

    return scale


# -- The families


def _heads(
    layers: int, query: int, kv: int | None, hidden: int, **others: object
) -> dict[str, object]:
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": query,
        "num_key_value_heads": kv,
        "hidden_size": hidden,
        **others,
    }


_QWEN = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_QWEN_READS = frozenset({"layer_types", "use_sliding_window", "max_window_layers"})
_TYPES = frozenset({"layer_types"})
_PATTERN = _TYPES | {"sliding_window_pattern", "_sliding_window_pattern"}

FAMILIES: dict[str, Family] = {
    "llama": Family(_heads(32, 32, None, 4096)),
    "mistral": Family(
        _heads(32, 32, 8, 4096, sliding_window=4096),
        _window_everywhere,
        reads=frozenset({"use_sliding_window"}),
    ),
    "mixtral": Family(_heads(32, 32, 8, 4096, sliding_window=None), _window_everywhere),
    "qwen2": Family(
        _heads(32, 32, 32, 4096, **_QWEN), _typed(_window_from_a_layer_on), reads=_QWEN_READS
    ),
    "qwen3": Family(
        _heads(32, 32, 32, 4096, head_dim=128, **_QWEN),
        _typed(_window_from_a_layer_on),
        reads=_QWEN_READS,
    ),
    "gemma": Family(_heads(28, 16, 16, 3072, head_dim=256)),
    "gemma2": Family(
        _heads(
            26,
            8,
            4,
            2304,
            head_dim=256,
            sliding_window=4096,
            query_pre_attn_scalar=256,
            attn_logit_softcapping=50.0,
        ),
        _typed(_every(2)),
        _per_root("query_pre_attn_scalar"),
        softcap="attn_logit_softcapping",
        reads=_TYPES,
    ),
    "gemma3_text": Family(
        _heads(26, 8, 4, 2304, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256),
        _typed(_every(6)),
        _per_root("query_pre_attn_scalar"),
        reads=_PATTERN | {"attn_logit_softcapping"},  # Gemma 3 has the field and caps no score
    ),
    "gemma3n_text": Family(
        _heads(35, 8, 2, 2048, head_dim=256, sliding_window=512, num_kv_shared_layers=15),
        _typed(_every(5)),
        lambda fields: 1.0,
        shares=True,
        reads=_PATTERN,
    ),
    "gemma4_text": Family(
        _heads(
            30,
            8,
            4,
            2304,
            head_dim=256,
            sliding_window=512,
            num_kv_shared_layers=0,
            global_head_dim=512,
        ),
        _last_layer_full(_typed(_every(6))),
        lambda fields: 1.0,
        shares=True,
        overrides=_gemma4_global_heads,
        reads=_PATTERN | {"global_head_dim", "num_global_key_value_heads", "attention_k_eq_v"},
    ),
    "gpt_oss": Family(
        _heads(36, 64, 8, 2880, head_dim=64, sliding_window=128),
        _typed(_every(2)),
        sink_logits=True,
        reads=_TYPES,
    ),
    "granite": Family(
        _heads(32, 32, None, 4096, attention_multiplier=1.0),
        scale=lambda fields: fields.number("attention_multiplier"),
    ),
    "llama4_text": Family(
        _heads(48, 40, 8, 5120, head_dim=128, attention_chunk_size=8192, no_rope_layer_interval=4),
        _typed(_chunks_with_rope),
        reads=_TYPES | {"attn_scale"},  # scales queries by their position, before attention
    ),
    "phi3": Family(_heads(32, 32, None, 3072, sliding_window=None), _window_everywhere),
    "cohere": Family(_heads(40, 64, None, 8192)),
    "cohere2": Family(
        _heads(40, 64, None, 8192, sliding_window=4096), _typed(_every(4)), reads=_PATTERN
    ),
    "olmo2": Family(_heads(32, 32, None, 4096)),
    "olmo3": Family(
        _heads(32, 32, None, 4096, sliding_window=4096), _typed(_every(4)), reads=_TYPES
    ),
    "smollm3": Family(
        _heads(
            36,
            16,
            4,
            2048,
            use_sliding_window=False,
            sliding_window=None,
            no_rope_layer_interval=4,
        ),
        _typed(_window_without_rope),
        reads=_TYPES | {"use_sliding_window"},
    ),
}
NESTED_TEXT_TYPES = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
}
