"""What transformers' code knows of a model beyond its `config.json`.

A config.json states what differs from its class's defaults, and those defaults live in
transformers' code. `FAMILIES` holds them for the model types that were read there: what a file may
leave out, which layers see what, how scores are scaled. Sources: configuration_*.py, modeling_*.py
and masking_utils.py of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvgen.hf_fields import Fields
from kvgen.hf_kinds import (
    Kinds,
    Overrides,
    chunks_with_rope,
    every,
    every_other_before_a_layer,
    everywhere,
    first_of,
    from_a_layer_on,
    full,
    gemma4_global_heads,
    last_layer_full,
    typed,
    windowed,
    without_rope,
)


@dataclass(frozen=True, slots=True)
class Family:
    """What transformers' code of one model type says beyond its config.json.

    `defaults`: fields a file may leave out. `kinds`: what each layer sees. `scale`: of the softmax,
    None for 1 / sqrt(head dim). `softcap`: the field that caps scores. `shares`: whether the last
    layers may read earlier ones' keys and values. `overrides`: fields of layers that differ.
    `reads`: fields without a default that decide what a query sees and are understood. `names`: its
    own names of fields, and everybody's.
    """

    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    kinds: Kinds = full
    scale: Callable[[Fields], float | None] = lambda fields: None
    softcap: str | None = None
    sink_logits: bool = False
    shares: bool = False
    overrides: Callable[[Fields, list[str]], Overrides] = lambda fields, kinds: {}
    reads: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict[str, str])


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


def _of(name: str) -> Callable[[Fields], float | None]:
    """A scale that is a field."""
    return lambda fields: fields.number(name)


def _per_root(name: str) -> Callable[[Fields], float | None]:
    """A scale of 1 / sqrt(the field)."""

    def scale(fields: Fields) -> float | None:
        number = fields.number(name)
        return None if number is None else number**-0.5

    return scale


_TYPES = frozenset({"layer_types"})
_PATTERN = _TYPES | {"sliding_window_pattern", "_sliding_window_pattern"}
_GPT2_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
}

_QWEN = {"use_sliding_window": False, "sliding_window": 4096}
_QWEN2_KINDS = typed(windowed(from_a_layer_on, "use_sliding_window"))
_QWEN2_VL = Family(
    _heads(80, 64, 8, 8192, max_window_layers=80, **_QWEN), _QWEN2_KINDS, reads=_TYPES
)
_GRANITE = Family(
    _heads(32, 32, None, 4096, attention_multiplier=1.0), scale=_of("attention_multiplier")
)
_EXAONE = Family(
    _heads(32, 32, 32, 4096, sliding_window=4096), typed(windowed(every(4))), reads=_PATTERN
)
_GEMMA2 = {"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0}

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        _heads(12, 12, None, 768, scale_attn_weights=True),
        scale=lambda fields: None if fields.get("scale_attn_weights") else 1.0,
        names=_GPT2_NAMES,
    ),
    "opt": Family(_heads(12, 12, None, 768), scale=lambda fields: 1.0),
    "llama": Family(_heads(32, 32, None, 4096)),
    "mistral": Family(
        _heads(32, 32, 8, 4096, sliding_window=4096),
        everywhere,
        reads=frozenset({"use_sliding_window"}),
    ),
    "ministral": Family(
        _heads(32, 32, 8, 4096, sliding_window=4096), typed(everywhere), reads=_TYPES
    ),
    "ministral3": Family(_heads(34, 32, 8, 4096, head_dim=128, sliding_window=None), everywhere),
    "mixtral": Family(_heads(32, 32, 8, 4096, sliding_window=None), everywhere),
    "starcoder2": Family(_heads(30, 24, 2, 3072, sliding_window=None), everywhere),
    "qwen2": Family(
        _heads(32, 32, 32, 4096, max_window_layers=28, **_QWEN), _QWEN2_KINDS, reads=_TYPES
    ),
    "qwen2_moe": Family(
        _heads(24, 16, 16, 2048, max_window_layers=28, **_QWEN),
        typed(windowed(every_other_before_a_layer, "use_sliding_window")),
        reads=_TYPES,
    ),
    "qwen2_vl": _QWEN2_VL,
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen3": Family(
        _heads(32, 32, 32, 4096, head_dim=128, max_window_layers=28, **_QWEN),
        _QWEN2_KINDS,
        reads=_TYPES,
    ),
    "qwen3_moe": Family(
        _heads(24, 32, 4, 2048, **_QWEN),
        windowed(everywhere, "use_sliding_window"),
        reads=frozenset({"max_window_layers"}),  # its class has no use for it
    ),
    "gemma": Family(_heads(28, 16, 16, 3072, head_dim=256)),
    "gemma2": Family(
        _heads(26, 8, 4, 2304, head_dim=256, sliding_window=4096, **_GEMMA2),
        typed(every(2)),
        _per_root("query_pre_attn_scalar"),
        softcap="attn_logit_softcapping",
        reads=_TYPES | {"sliding_window_size"},  # an older name, which files still have beside it
    ),
    "vaultgemma": Family(
        _heads(26, 8, 4, 2304, head_dim=256, sliding_window=4096, **_GEMMA2),
        typed(every(2)),
        _per_root("query_pre_attn_scalar"),
        softcap="attn_logit_softcapping",
        reads=_TYPES,
    ),
    "gemma3_text": Family(
        _heads(26, 8, 4, 2304, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256),
        typed(every(6)),
        _per_root("query_pre_attn_scalar"),
        reads=_PATTERN | {"attn_logit_softcapping"},  # Gemma 3 has the field and caps no score
    ),
    "gemma3n_text": Family(
        _heads(35, 8, 2, 2048, head_dim=256, sliding_window=512, num_kv_shared_layers=15),
        typed(every(5)),
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
        last_layer_full(typed(every(6))),
        lambda fields: 1.0,
        shares=True,
        overrides=gemma4_global_heads,
        reads=_PATTERN | {"num_global_key_value_heads", "attention_k_eq_v"},
    ),
    "gpt_oss": Family(
        _heads(36, 64, 8, 2880, head_dim=64, sliding_window=128),
        typed(every(2)),
        sink_logits=True,
        reads=_TYPES,
    ),
    "granite": _GRANITE,
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
    "llama4_text": Family(
        _heads(48, 40, 8, 5120, head_dim=128, attention_chunk_size=8192, no_rope_layer_interval=4),
        typed(chunks_with_rope),
        reads=_TYPES | {"attn_scale"},  # scales queries by their position, before attention
    ),
    "phi3": Family(_heads(32, 32, None, 3072, sliding_window=None), everywhere),
    "phimoe": Family(_heads(32, 32, 8, 4096, sliding_window=None), everywhere),
    "cohere": Family(_heads(40, 64, None, 8192)),
    "cohere2": Family(
        _heads(40, 64, None, 8192, sliding_window=4096), typed(every(4)), reads=_PATTERN
    ),
    "olmo2": Family(_heads(32, 32, None, 4096)),
    "olmo3": Family(_heads(32, 32, None, 4096, sliding_window=4096), typed(every(4)), reads=_TYPES),
    "exaone4": _EXAONE,
    "exaone_moe": _EXAONE,
    "afmoe": Family(
        _heads(32, 16, None, 2048, head_dim=128, sliding_window=1024, global_attn_every_n_layers=4),
        typed(every(4, "global_attn_every_n_layers")),
        reads=_TYPES,
    ),
    "cwm": Family(
        _heads(64, 48, 8, 6144, head_dim=128, sliding_window=8192), typed(first_of(4)), reads=_TYPES
    ),
    "dots1": Family(
        _heads(62, 32, 32, 4608, sliding_window=4096, max_window_layers=62),
        typed(windowed(from_a_layer_on)),
        reads=_TYPES,
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
        typed(windowed(without_rope, "use_sliding_window")),
        reads=_TYPES | {"max_window_layers"},  # its files have it, its class has no use for it
    ),
}
NESTED_TEXT_TYPES = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
}
