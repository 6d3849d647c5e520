# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body bfce233fa5d8 codegen 1
"""Whether a model's config and tensors agree with the policies that a cache was compiled from."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from transformers import PretrainedConfig

NAME = "kvgen"  # of the attention, and of the attribute by which it finds its cache
SLIDING = ("sliding_attention", "hybrid_sliding")


class Facts(NamedTuple):
    """What one policy says of a layer. None: no such limit. `ring`: slots, sinks left out."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    softcap: float | None
    sink_logits: bool
    window: int | None
    chunk: int | None
    sinks: int
    ring: int | None
    trimmable: bool
    stateless: bool

    @property
    def limited(self) -> bool:
        return self.window is not None or self.chunk is not None


class Call(NamedTuple):
    """What a layer hands its attention function besides tensors of its columns. None: not given."""

    scaling: float | None
    softcap: float | None
    sink_logits: Any
    window: int | None
    position_ids: Any


def repeated(layers: int, *runs: tuple[int, Facts]) -> tuple[Facts, ...]:
    """The facts of each layer: layer i uses entry i mod the sum of the runs' counts."""
    period = [facts for count, facts in runs for _ in range(count)]
    return tuple(period[i % len(period)] for i in range(layers))


def text_config(config: Any) -> Any:
    """The decoder's part of a config."""
    get = getattr(config, "get_text_config", None)
    return config if get is None else get(decoder=True)


def check_config(name: str, config: Any, layers: tuple[Facts, ...], donors: dict[int, int]) -> None:
    """ValueError, naming the field, where a model's config disagrees with the policies."""
    if not isinstance(config, PretrainedConfig):
        raise ValueError(
            f"{name} takes a model's config, got a {type(config).__name__}: give model.config"
        )
    config = text_config(config)
    _check(
        name, "num_hidden_layers", config.num_hidden_layers, len(layers), "the model declaration"
    )
    for i, (layer, facts) in enumerate(zip(_layer_configs(config, len(layers)), layers)):
        where = f"the policy of layer {i}"
        heads = layer.num_attention_heads
        kv_heads = getattr(layer, "num_key_value_heads", None) or heads
        dim = getattr(layer, "head_dim", None) or layer.hidden_size // heads
        _check(name, "num_attention_heads", heads, facts.query_heads, where)
        _check(name, "num_key_value_heads", kv_heads, facts.kv_heads, where)
        _check(name, "head_dim", dim, facts.key_dim, where)
        _check(name, "head_dim", dim, facts.value_dim, where)
        _check_scores(name, config, facts, where)
    check_sight(name, config, layers, donors)


def check_sight(name: str, config: Any, layers: tuple[Facts, ...], donors: dict[int, int]) -> None:
    """ValueError where windows, chunks, the layer pattern or sharing disagree."""
    config = text_config(config)
    _check(
        name, "num_hidden_layers", config.num_hidden_layers, len(layers), "the model declaration"
    )
    kinds = layer_kinds(config)
    for i, (layer, facts) in enumerate(zip(_layer_configs(config, len(layers)), layers)):
        where = f"the policy of layer {i}"
        window = layer.sliding_window if kinds[i] in SLIDING else None
        chunk = layer.attention_chunk_size if kinds[i] == "chunked_attention" else None
        if (window is None and chunk is None) == facts.limited:
            seen = f"window {facts.window}" if facts.chunk is None else f"chunk {facts.chunk}"
            _refuse(
                name, f"layer_types[{i}]", kinds[i], seen if facts.limited else "window full", where
            )
        _check(name, "sliding_window", window, facts.window, where)
        _check(name, "attention_chunk_size", chunk, facts.chunk, where)
        _check(name, "sinks (positions seen for ever)", 0, facts.sinks, where)
    wanted = _donors(config, kinds)
    for i in sorted(wanted.keys() | donors.keys()):
        if wanted.get(i, i) != donors.get(i, i):
            ours = f"share {i} from {donors[i]}" if i in donors else f"no share for layer {i}"
            theirs = getattr(config, "num_kv_shared_layers", None)
            _refuse(name, "num_kv_shared_layers", theirs, ours, "the model declaration")


def sees_everything(config: Any) -> bool:
    """Whether no layer of the model has a window or a chunk."""
    return all(kind == "full_attention" for kind in layer_kinds(text_config(config)))


def layer_kinds(config: Any) -> list[str]:
    """The attention type of each layer, by its name in transformers."""
    stated = getattr(config, "layer_types", None)
    if stated is not None:
        return list(stated)
    if getattr(config, "sliding_window", None) is not None:
        return ["sliding_attention"] * config.num_hidden_layers
    if getattr(config, "attention_chunk_size", None) is not None:
        return ["chunked_attention"] * config.num_hidden_layers
    return ["full_attention"] * config.num_hidden_layers


def _layer_configs(config: Any, layers: int) -> list[Any]:
    """The config of each layer: transformers 5 lets them differ."""
    configs = getattr(config, "per_layer_config", None)
    return list(configs) if configs else [config] * layers


def _donors(config: Any, kinds: list[str]) -> dict[int, int]:
    """Layer to the layer whose keys and values it reads: the last one before it of its kind."""
    modes = getattr(config, "kv_sharing_modes", None)
    if modes is None:  # before transformers 5: the last layers, by their number
        shared = getattr(config, "num_kv_shared_layers", None) or 0
        modes = [None] * (len(kinds) - shared) + ["reuse"] * shared
    last: dict[str, int] = {}
    donors = {}
    for i, (kind, mode) in enumerate(zip(kinds, modes)):
        if mode == "reuse":
            donors[i] = last[kind]
        else:
            last[kind] = i
    return donors


def _check_scores(name: str, config: Any, facts: Facts, where: str) -> None:
    """What a config says of scores in the model types that were read; the others' calls tell."""
    if config.model_type in ("gemma2", "gemma3_text"):
        scale = config.query_pre_attn_scalar**-0.5
        if not math.isclose(scale, facts.scale, rel_tol=1e-6):
            _refuse(
                name,
                "query_pre_attn_scalar",
                config.query_pre_attn_scalar,
                f"scale {facts.scale}",
                where,
            )
    if config.model_type == "gemma2":
        _check(name, "attn_logit_softcapping", config.attn_logit_softcapping, facts.softcap, where)


def check_call(name: str, facts: Facts, layer: int, call: Call) -> None:
    """ValueError where what a layer hands its attention function disagrees with the policy."""
    where = f"the policy of layer {layer}"
    if call.scaling is not None and not math.isclose(call.scaling, facts.scale, rel_tol=1e-6):
        _refuse(name, "scaling", call.scaling, f"scale {facts.scale}", where)
    _check(name, "softcap", call.softcap, facts.softcap, where)
    if (call.sink_logits is not None) != facts.sink_logits:
        ours = "sink_logits" if facts.sink_logits else "no sink_logits"
        theirs = "absent" if call.sink_logits is None else "given"
        _refuse(name, "s_aux (sink logits)", theirs, ours, where)
    if call.window is not None:
        _check(name, "sliding_window", call.window, facts.window, where)


def check_tensors(name: str, facts: Facts, layer: int, k: Any, v: Any) -> None:
    """ValueError where keys and values are not of the policy's heads and dims."""
    where = f"the policy of layer {layer}"
    _check(name, "num_key_value_heads (heads of the keys)", k.shape[1], facts.kv_heads, where)
    _check(name, "head_dim (of the keys)", k.shape[3], facts.key_dim, where)
    _check(name, "head_dim (of the values)", v.shape[3], facts.value_dim, where)


def _check(name: str, field: str, theirs: Any, ours: Any, where: str) -> None:
    if theirs != ours:
        _refuse(name, field, theirs, ours, where)


def _refuse(name: str, field: str, theirs: Any, ours: Any, where: str) -> None:
    raise ValueError(
        f"{name} does not fit this model: {field} is {theirs}, {where} says {ours}; write a policy "
        "for the model with `kvgen init --from config.json`, or correct this one, and compile it"
    )
