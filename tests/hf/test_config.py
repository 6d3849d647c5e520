"""`init --from`: what is written from a config.json, held against transformers' own config objects."""

from __future__ import annotations

import pytest

from kvgen import ir
from kvgen.hf_families import FAMILIES
from kvgen.hf_fields import ConfigError
from kvgen.hf_text import policy_text
from kvgen.pipeline import check_text

SMALL = {
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
HEADS = {"hidden_size": 64, "num_attention_heads": 4}
USED = {**SMALL, "use_sliding_window": True, "sliding_window": 9}
SHARED = {**SMALL, "num_hidden_layers": 10, "num_kv_shared_layers": 4}
VARIANTS = {
    "gpt2": [{}, {"n_embd": 64, "n_layer": 3, "n_head": 4}],
    "opt": [{}, {**HEADS, "num_hidden_layers": 3}],
    "ministral": [{}, {**SMALL, "sliding_window": None}, {**SMALL, "sliding_window": 7}],
    "ministral3": [{}, {**SMALL, "sliding_window": 7}],
    "starcoder2": [{}, {**SMALL, "sliding_window": 9}],
    "qwen2_moe": [{}, SMALL, {**USED, "max_window_layers": 5}],
    "qwen2_vl": [{}, {**USED, "max_window_layers": 5}],
    "qwen2_vl_text": [{}, {**USED, "max_window_layers": 5}],
    "qwen2_5_vl": [{}, {**USED, "max_window_layers": 5}],
    "qwen2_5_vl_text": [{}, {**USED, "max_window_layers": 5}],
    "qwen3_moe": [{}, {**SMALL, "max_window_layers": 3}, USED],
    "vaultgemma": [{}, {**SMALL, "query_pre_attn_scalar": 144}],
    "granitemoe": [{}, {**SMALL, "attention_multiplier": 0.02}],
    "granitemoeshared": [{}, {**SMALL, "attention_multiplier": 0.02}],
    "phimoe": [{}, {**SMALL, "sliding_window": 6}],
    "exaone4": [{}, {**SMALL, "sliding_window_pattern": 3, "sliding_window": 6}],
    "exaone_moe": [{}, {**SMALL, "sliding_window_pattern": 3, "sliding_window": 6}],
    "afmoe": [{}, {**SMALL, "global_attn_every_n_layers": 3, "sliding_window": 6}],
    "cwm": [{}, {**SMALL, "sliding_window": 6}],
    "dots1": [{}, {**SMALL, "sliding_window": None}, {**SMALL, "max_window_layers": 3}],
    "llama": [{}, SMALL, {**SMALL, "head_dim": 8, "num_key_value_heads": 2}],
    "mistral": [{}, {**SMALL, "sliding_window": None}, {**SMALL, "sliding_window": 7}],
    "mixtral": [{}, {**SMALL, "sliding_window": 9}],
    "qwen2": [{}, {**SMALL, "use_sliding_window": True, "max_window_layers": 3}],
    "qwen3": [{}, {**SMALL, "use_sliding_window": True, "max_window_layers": 0}],
    "gemma": [{}, SMALL],
    "gemma2": [{}, {**SMALL, "query_pre_attn_scalar": 144, "attn_logit_softcapping": None}],
    "gemma3_text": [{}, {**SMALL, "sliding_window_pattern": 3, "query_pre_attn_scalar": 9}],
    "gemma3n_text": [{}, SHARED],
    "gemma4_text": [{}, {**SHARED, "num_hidden_layers": 15, "global_head_dim": 24}],
    "gpt_oss": [{}, {**SMALL, "sliding_window": 5}],
    "granite": [{}, {**SMALL, "attention_multiplier": 0.02}],
    "llama4_text": [
        {},
        {**SMALL, "attention_chunk_size": 16},
        {**SMALL, "no_rope_layers": [1, 0] * 4},
    ],
    "phi3": [{}, {**SMALL, "sliding_window": 6}],
    "cohere": [{}, SMALL],
    "cohere2": [{}, {**SMALL, "sliding_window_pattern": 2, "head_dim": 8}],
    "olmo2": [{}, SMALL],
    "olmo3": [{}, {**SMALL, "sliding_window": 3}],
    "smollm3": [{}, {**SMALL, "use_sliding_window": True, "sliding_window": 4}],
}
CASES = [(kind, i) for kind in VARIANTS for i in range(len(VARIANTS[kind]))]
SCALES = {  # as the modeling files compute them
    "gemma2": lambda c, dim: c.query_pre_attn_scalar**-0.5,
    "gemma3_text": lambda c, dim: c.query_pre_attn_scalar**-0.5,
    "gemma3n_text": lambda c, dim: 1.0,
    "gemma4_text": lambda c, dim: 1.0,
    "granite": lambda c, dim: c.attention_multiplier,
    "granitemoe": lambda c, dim: c.attention_multiplier,
    "granitemoeshared": lambda c, dim: c.attention_multiplier,
    "vaultgemma": lambda c, dim: c.query_pre_attn_scalar**-0.5,
    "opt": lambda c, dim: 1.0,
}


def program_of(config: dict, name: str | None = None) -> ir.Program:
    checked = check_text(policy_text(config, name), "from_config.kv")
    assert not checked.diagnostics
    assert checked.program is not None
    return checked.program


def config_object(kind: str, fields: dict):
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[kind](
        **{key: list(v) if isinstance(v, list) else v for key, v in fields.items()}
    )


def test_every_family_is_compared():
    assert set(VARIANTS) == set(FAMILIES)


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_the_policies_are_those_of_transformers_config(kind, variant):
    cache_utils = pytest.importorskip("transformers.cache_utils")
    fields = VARIANTS[kind][variant]
    program, config = (
        program_of({"model_type": kind, **fields}),
        config_object(kind, fields).get_text_config(),
    )
    types, limits = cache_utils.get_layer_types_and_kwargs(config)
    (model,) = program.models
    shares = {share.layer: share.donor for share in model.shares}
    assert model.layers == config.num_hidden_layers == len(types)
    for i, layer in enumerate(config.per_layer_config):
        policy = program.policy(model.policy_of(i))
        heads, window = policy.heads, limits[i].get("sliding_window")
        dim = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
        assert heads.query == layer.num_attention_heads
        kv_heads = getattr(layer, "num_key_value_heads", None)
        assert heads.kv == (kv_heads or layer.num_attention_heads)
        assert heads.key_dim == heads.value_dim == dim
        assert (types[i] == "dummy") == (i in shares)
        kind_of_layer = config.layer_types[i] if types[i] == "dummy" else types[i]
        if types[i] == "dummy":
            donor = shares[i]
            assert config.layer_types[donor] == kind_of_layer
            assert "dummy" not in types[: donor + 1]
            assert kind_of_layer not in config.layer_types[donor + 1 : model.layers - len(shares)]
        seen = policy.retention
        limited = {"sliding_attention": seen.window_tokens, "chunked_attention": seen.chunk_tokens}
        assert [
            limit for limit in (seen.window_tokens, seen.chunk_tokens) if limit is not None
        ] == ([limited[kind_of_layer]] if kind_of_layer in limited else [])
        assert types[i] == "dummy" or window == limited.get(kind_of_layer)
        assert seen.sink_tokens == 0
        scale = SCALES.get(kind, lambda c, dim: dim**-0.5)(config, dim)
        assert (policy.scores.scale or dim**-0.5) == pytest.approx(scale, rel=1e-12)
        assert policy.scores.softcap == (
            config.attn_logit_softcapping if kind in ("gemma2", "vaultgemma") else None
        )
        assert policy.scores.sink_logits == (kind == "gpt_oss")


@pytest.mark.parametrize("kind", sorted(VARIANTS))
def test_a_file_that_transformers_saved_says_the_same(kind, tmp_path):
    """`save_pretrained` writes layer_types, per_layer_config and the like, which hub files leave out."""
    import json

    pytest.importorskip("transformers")
    fields = VARIANTS[kind][-1]
    config_object(kind, fields).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert policy_text(saved, "M") == policy_text({"model_type": kind, **fields}, "M").replace(
        f"model_type {kind}.", f"model_type {saved['model_type']}."
    )


def test_multimodal_files_nest_the_text_model():
    nested = {"model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024}
    program = program_of({"model_type": "gemma3", "torch_dtype": "float16", "text_config": nested})
    (model,) = program.models
    assert (model.name, model.layers) == ("Gemma3", 34)
    sliding, full = program.policies
    assert (sliding.heads.query, sliding.heads.kv, sliding.heads.key_dim) == (8, 4, 256)
    assert sliding.retention.window_tokens == 1024
    assert full.retention.window_tokens is None
    assert sliding.dtype is ir.DType.F16
    untyped = {key: value for key, value in nested.items() if key != "model_type"}
    assert program_of({"model_type": "gemma3", "text_config": untyped}).models == program.models


def test_dtype_is_the_files_or_bf16():
    for fields, dtype in [
        ({"torch_dtype": "float32"}, ir.DType.F32),
        ({"dtype": "float16"}, ir.DType.F16),
        ({}, ir.DType.BF16),
        ({"dtype": None}, ir.DType.BF16),
    ]:
        assert program_of({"model_type": "llama", **fields}).policies[0].dtype is dtype


def test_rings_have_room_for_drafts():
    (policy,) = program_of({"model_type": "mistral"}).policies
    assert isinstance(policy.storage, ir.Ring)
    assert policy.storage.slack_slots == policy.trim.bypass_tokens == 7
    assert policy.padding == ir.Padding(left=True, right=True)


PLAIN = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}


def test_an_unknown_model_without_anything_special_sees_everything():
    program = program_of({"model_type": "new-thing", "architectures": ["NewForCausalLM"], **PLAIN})
    assert program.models[0].name == "NewThing"
    assert program.policies[0].retention == ir.Retention(None, 0, None)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "new", **PLAIN, "sliding_window": 8}, "sliding_window"),
        ({"model_type": "new", **PLAIN, "layer_types": ["full_attention"] * 2}, "layer_types"),
        (
            {"model_type": "new", **PLAIN, "use_bidirectional_attention": True},
            "use_bidirectional_attention",
        ),
        ({"model_type": "new", **PLAIN, "attention_sinks": 4}, "attention_sinks"),
        ({"model_type": "new", **PLAIN, "kv_lora_rank": 512}, "kv_lora_rank"),
        ({"model_type": "new", **PLAIN, "attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"model_type": "new", **PLAIN, "is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"model_type": "bert", **PLAIN, "architectures": ["BertForMaskedLM"]}, "architectures"),
        ({"model_type": "new", "hidden_size": 64, "num_attention_heads": 4}, "num_hidden_layers"),
        ({"model_type": "llama", "sliding_window": 8}, "sliding_window"),
        ({"model_type": "llama", "layer_types": ["sliding_attention"] * 32}, "layer_types"),
        ({"model_type": "llama", "attention_chunk_size": 8}, "attention_chunk_size"),
        ({"model_type": "llama", "is_causal": False}, "is_causal"),
        (
            {"model_type": "gemma2", "use_bidirectional_attention": True},
            "use_bidirectional_attention",
        ),
        (
            {"model_type": "gemma4_text", "use_bidirectional_attention": "vision"},
            "use_bidirectional_attention",
        ),
        ({"model_type": "gemma3_text", "num_kv_shared_layers": 3}, "num_kv_shared_layers"),
        ({"model_type": "qwen2", "layer_types": ["linear_attention"] * 32}, "layer_types"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"model_type": "mistral", "sliding_window": -1}, "sliding_window"),
        ({"model_type": "mistral", "sliding_window": "512"}, "sliding_window"),
        ({"model_type": "llama", "num_key_value_heads": 5}, "num_key_value_heads"),
        ({"model_type": "llama", "num_attention_heads": True}, "num_attention_heads"),
        ({"model_type": "gemma2", "query_pre_attn_scalar": float("nan")}, "query_pre_attn_scalar"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 35}, "num_kv_shared_layers"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 33}, "shares"),
        (
            {"model_type": "llama", "per_layer_config": {"0": {"num_attention_heads": 8}}},
            "per_layer_config",
        ),
        ({"model_type": "llama", "per_layer_config": {"40": {}}}, "per_layer_config"),
        ({"num_hidden_layers": 2}, "model_type"),
        ([], "config.json"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(config, named):
    with pytest.raises(ConfigError, match=named) as refused:
        policy_text(config)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    "name", ["", "1st", "class", "a b", "x" * 65, "Full", "full", "é", 'M {}\n"']
)
def test_a_name_that_cannot_be_a_models_is_refused(name):
    with pytest.raises(ConfigError, match="name"):
        policy_text({"model_type": "llama"}, name)


def test_text_of_a_config_cannot_become_policy_text():
    hostile = "llama\n} policy X { heads query 1 kv 1"
    with pytest.raises(ConfigError):
        policy_text({"model_type": hostile, **PLAIN, "sliding_window": 3})
    program = program_of({"model_type": hostile, **PLAIN}, "M")
    assert [policy.name for policy in program.policies] == ["Full"]
