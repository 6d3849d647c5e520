"""What a Hugging Face `config.json` says of each layer's attention. No transformers.

What the file leaves out comes from `hf_families`. Whatever could change what a query sees and is
not understood is refused by name: a policy guessed wrong gives other logits without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvgen.hf_families import FAMILIES, NESTED_TEXT_TYPES, Family
from kvgen.hf_fields import ConfigError, Fields, as_list, as_object, shown
from kvgen.hf_kinds import CHUNKED, FULL, SLIDING, Overrides

KINDS = (FULL, SLIDING, CHUNKED)


@dataclass(frozen=True, slots=True)
class Layer:
    """What decides one layer's policy."""

    kind: str
    query: int
    kv: int
    dim: int
    window: int | None
    chunk: int | None


@dataclass(frozen=True, slots=True)
class Described:
    """A model, as far as its caches go. `known`: whether its code was read. `shares`: (layer, donor)
    of layers that read another's keys and values."""

    family: Family
    fields: Fields
    known: bool
    layers: list[Layer]
    shares: list[tuple[int, int]]


# Words in the name of a field that changes what a query sees, or how its scores are made.
SUSPECT = re.compile(
    r"window|sliding|chunk|bidirect|causal|softcap|logit_cap|sink|alibi|sparse|dilat|layer_types|layer_pattern|"
    r"hybrid|kv_shared|share_kv|kv_lora|q_lora|qk_rope|latent|multi_query|n_kv|kv_heads|"
    r"global_(head|num|attn|attention)|local_(attn|attention|window)|attn_layer|attention_layer|k_eq_v|per_layer_config|"
    r"query_pre_attn|attention_multiplier|attn_scale|scale_attn|attn_output|max_attn|attention_type|attn_type|attn_config|"
    r"block_config|use_cla|full_attention_interval|mamba|ssm|recurrent|linear_(attn|attention|conv|key|value)|"
    r"conv_(kernel|l_cache|dim)|cross_attention|is_encoder_decoder|position_bias|relative_attention|prefix_lm|index_topk"
)
UNDERSTOOD = frozenset(
    "num_hidden_layers num_attention_heads num_key_value_heads hidden_size head_dim no_rope_layers "
    "no_rope_layer_interval final_logit_softcapping per_layer_config is_causal decoder_sparse_step "
    "mlp_layer_types".split()
)
LAYER_OVERRIDES = frozenset(
    {"head_dim", "num_key_value_heads", "sliding_window", "attention_chunk_size"}
)


def read(config: Mapping[str, object]) -> Described:
    """Raises ConfigError where the file says something that no policy expresses, or that is not understood."""
    family, fields = _text_fields(config)
    layers = _layers(family, fields)
    known = fields.model_type in FAMILIES
    return Described(family, fields, known, layers, _shares(family, fields, layers))


def _text_fields(config: Mapping[str, object]) -> tuple[Family, Fields]:
    """The family and fields of the decoder, which multimodal models nest in `text_config`."""
    if as_object(config) is None:
        raise ConfigError(
            f"a config.json holds one object, got {type(config).__name__}. Give a model's "
            "config.json."
        )
    text, model_type = config, config.get("model_type")
    nested = as_object(config.get("text_config"))
    if nested is not None:
        text = {**{key: config[key] for key in ("torch_dtype", "dtype") if key in config}, **nested}
        model_type = nested.get("model_type") or NESTED_TEXT_TYPES.get(str(model_type), model_type)
    if not isinstance(model_type, str) or not model_type:
        raise ConfigError(
            "model_type is missing: it says which defaults the file leaves out. Add it, e.g. "
            '"model_type": "llama".'
        )
    family = FAMILIES.get(model_type)
    names = family.names if family else dict[str, str]()
    text = {names.get(key, key): value for key, value in text.items()}
    values = {**(family.defaults if family else {}), **text}
    fields = Fields(model_type, values)
    _refuse_what_is_not_understood(family, fields, text)
    return family or Family(), fields


def _refuse_what_is_not_understood(
    family: Family | None, fields: Fields, text: Mapping[str, object]
) -> None:
    if fields.get("use_bidirectional_attention"):
        raise ConfigError(
            f"use_bidirectional_attention is {shown(fields.get('use_bidirectional_attention'))}: "
            "queries see later positions, which no kvgen policy allows. For causal text only, set "
            "it to null in a copy of the file."
        )
    if fields.get("is_causal") is False:
        raise ConfigError(
            "is_causal is false: queries see later positions, which no kvgen policy allows."
        )
    known = UNDERSTOOD | (family.reads | family.defaults.keys() if family else set[str]())
    for name in sorted(text):
        if (
            name not in known
            and text[name] not in (None, False, 0, "", [], {})
            and SUSPECT.search(name)
        ):
            kind = "model_type" if family is not None else "unknown model_type"
            raise ConfigError(
                f"{name} is {shown(text[name])}: it may change what a query sees, and {kind} "
                f"{fields.model_type!r} is not known to use it. Write the policy by hand, or, if "
                f"it changes nothing, remove {name} from a copy of the file."
            )
    if family is None:
        _refuse_unless_plain_decoder(fields)


def _refuse_unless_plain_decoder(fields: Fields) -> None:
    """An unknown model type passes as full causal attention, if all of the file looks like it."""
    architectures = fields.get("architectures") or ["ForCausalLM"]
    names = as_list(architectures) or [architectures]
    if not any(str(name).endswith("ForCausalLM") for name in names):
        raise ConfigError(
            f"model_type {fields.model_type!r} is unknown, and architectures is "
            f"{shown(architectures)}: nothing says that it is a causal decoder. Known model types: "
            f"{', '.join(sorted(FAMILIES))}. Write the policy by hand."
        )


def _kinds(family: Family, fields: Fields, layers: int) -> list[str]:
    kinds = family.kinds(fields, layers)
    for i, kind in enumerate(kinds):
        if kind not in KINDS:
            raise ConfigError(
                f"layer_types[{i}] is {shown(kind)}: kvgen has policies for "
                f"{', '.join(KINDS)}. Layers of another kind keep no keys and values that a "
                "policy could describe."
            )
    return kinds


def _layers(family: Family, fields: Fields) -> list[Layer]:
    """Every layer of the model, in order."""
    count = fields.count("num_hidden_layers")
    kinds = _kinds(family, fields, count)
    overrides = {**family.overrides(fields, kinds), **_per_layer_config(fields, count)}
    return [_layer(fields, kind, overrides.get(i, {})) for i, kind in enumerate(kinds)]


def _per_layer_config(fields: Fields, layers: int) -> Overrides:
    """What transformers 5 writes for layers that differ."""
    stated = fields.get("per_layer_config")
    found = as_object(stated or dict[str, Any]())
    if found is None or not all(
        str(key).isdigit() and int(str(key)) < layers and isinstance(value, Mapping)
        for key, value in found.items()
    ):
        raise ConfigError(
            f"per_layer_config must map layers 0 to {layers - 1} to their fields, got "
            f"{shown(stated)}."
        )
    for key, value in found.items():
        for name in sorted(set(value) - LAYER_OVERRIDES):
            if SUSPECT.search(name) or name == "num_attention_heads":
                raise ConfigError(
                    f"per_layer_config[{key}] sets {name}: it may change what the layer's queries "
                    "see. Write the policy by hand."
                )
    return {
        int(str(key)): {n: value[n] for n in value if n in LAYER_OVERRIDES}
        for key, value in found.items()
    }


def _layer(fields: Fields, kind: str, override: Mapping[str, Any]) -> Layer:
    fields = Fields(fields.model_type, {**fields.values, **override})
    query = fields.count("num_attention_heads")
    kv = fields.optional_count("num_key_value_heads") or query
    if query % kv:
        raise ConfigError(
            f"num_attention_heads is {query} and num_key_value_heads {kv}: not a multiple of it."
        )
    window = fields.count("sliding_window") if kind == SLIDING else None
    chunk = fields.count("attention_chunk_size") if kind == CHUNKED else None
    return Layer(kind, query, kv, _head_dim(fields, query), window, chunk)


def _head_dim(fields: Fields, query: int) -> int:
    return fields.optional_count("head_dim") or fields.count("hidden_size") // query


def _shares(family: Family, fields: Fields, layers: list[Layer]) -> list[tuple[int, int]]:
    """(layer, donor): the last layers read the last layer before them that is of their kind."""
    shared = fields.get("num_kv_shared_layers") or 0
    if not family.shares or not shared:
        return []
    if isinstance(shared, bool) or not isinstance(shared, int) or not 0 < shared < len(layers):
        raise ConfigError(
            f"num_kv_shared_layers is {shown(shared)}: expected 0 to {len(layers) - 1}."
        )
    first = len(layers) - shared
    donors = {layer.kind: i for i, layer in enumerate(layers[:first])}
    pairs: list[tuple[int, int]] = []
    for i in range(first, len(layers)):
        if (donor := donors.get(layers[i].kind)) is None:
            raise ConfigError(
                f"layer {i} shares keys and values, but no layer before {first} is "
                f"{layers[i].kind} too."
            )
        pairs.append((i, donor))
    return pairs
