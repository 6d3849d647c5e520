"""Which layers of a model see what, where its config.json does not list them: what its class would have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvgen.hf_fields import ConfigError, Fields, shown

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"

Kinds = Callable[[Fields, int], list[str]]
Overrides = dict[int, Mapping[str, Any]]  # the fields of layers that differ


def full(fields: Fields, layers: int) -> list[str]:
    return [FULL] * layers


def everywhere(fields: Fields, layers: int) -> list[str]:
    """A window in every layer, if there is one."""
    return [FULL if fields.get("sliding_window") is None else SLIDING] * layers


def typed(otherwise: Kinds) -> Kinds:
    """The file's `layer_types`, or others where it has none."""
    return lambda fields, layers: fields.layers("layer_types", layers) or otherwise(fields, layers)


def windowed(kinds: Kinds, switch: str | None = None) -> Kinds:
    """Full attention everywhere unless the file has a window, and a field that must be true is."""

    def used(fields: Fields) -> bool:
        return fields.get("sliding_window") is not None and bool(not switch or fields.get(switch))

    return lambda fields, layers: (kinds if used(fields) else full)(fields, layers)


def every(interval: int, stated: str = "sliding_window_pattern") -> Kinds:
    """Full attention in every `interval`-th layer, or as often as a field says, a window in the others."""

    def kinds(fields: Fields, layers: int) -> list[str]:
        step = fields.optional_count(stated) or interval
        return [SLIDING if (i + 1) % step else FULL for i in range(layers)]

    return kinds


def first_of(interval: int) -> Kinds:
    """Full attention in the first layer of every `interval`, a window in the others."""
    return lambda fields, layers: [SLIDING if i % interval else FULL for i in range(layers)]


def from_a_layer_on(fields: Fields, layers: int) -> list[str]:
    return [SLIDING if i >= _max_window_layers(fields) else FULL for i in range(layers)]


def every_other_before_a_layer(fields: Fields, layers: int) -> list[str]:
    """What Qwen 2 MoE's class writes: the window goes to even layers before `max_window_layers`."""
    end = _max_window_layers(fields)
    return [SLIDING if i < end and i % 2 == 0 else FULL for i in range(layers)]


def _max_window_layers(fields: Fields) -> int:
    found = fields.get("max_window_layers")
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ConfigError(
            f"max_window_layers is {shown(found)}: expected the number of a layer, 0 or more. "
            "Correct the config.json."
        )
    return found


def without_rope(fields: Fields, layers: int) -> list[str]:
    """A window where there is no rotary embedding."""
    return [FULL if rope else SLIDING for rope in _rope_layers(fields, layers)]


def chunks_with_rope(fields: Fields, layers: int) -> list[str]:
    if fields.get("attention_chunk_size") is None:
        return [FULL] * layers
    return [CHUNKED if rope else FULL for rope in _rope_layers(fields, layers)]


def _rope_layers(fields: Fields, layers: int) -> list[Any]:
    """One true entry a layer with rotary embedding: `no_rope_layers` says the opposite."""
    step = fields.count("no_rope_layer_interval")
    return fields.layers("no_rope_layers", layers) or [(i + 1) % step for i in range(layers)]


def last_layer_full(kinds: Kinds) -> Kinds:
    return lambda fields, layers: [*kinds(fields, layers)[:-1], FULL]


def gemma4_global_heads(fields: Fields, kinds: list[str]) -> Overrides:
    """Gemma 4's full layers have heads of another size, and number where k and v are one."""
    heads = {"head_dim": fields.count("global_head_dim")}
    if fields.get("attention_k_eq_v") and fields.get("num_global_key_value_heads") is not None:
        heads["num_key_value_heads"] = fields.count("num_global_key_value_heads")
    return {i: heads for i, kind in enumerate(kinds) if kind == FULL}
