"""Tiny random models of every family, and the caches that `init --from` and the compiler make for them."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    DynamicCache,
    LlamaForCausalLM,
)

import kvgen
from kvgen.hf_text import policy_text

VOCABULARY = 89
WINDOW = 6


class Family(NamedTuple):
    """A model type, its config's fields, and where the text model's fields go."""

    model_type: str
    fields: dict[str, Any]


COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MIXED = ["full_attention", "sliding_attention"]
FAMILIES = {
    "llama": Family("llama", {}),
    "smollm2": Family(
        "llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72}
    ),
    "mistral": Family("mistral", {"sliding_window": WINDOW}),
    "qwen2": Family(
        "qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}
    ),
    "qwen3": Family(
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "max_window_layers": 1,
            "head_dim": 16,
        },
    ),
    "gemma2": Family(
        "gemma2",
        {
            "sliding_window": WINDOW,
            "head_dim": 8,
            "query_pre_attn_scalar": 13,
            "attn_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Family(
        "gemma3_text",
        {
            "sliding_window": WINDOW,
            "head_dim": 8,
            "query_pre_attn_scalar": 5,
            "num_hidden_layers": 7,
            "sliding_window_pattern": 3,
        },
    ),
    "gemma3n": Family(
        "gemma3n_text",
        {
            "sliding_window": WINDOW,
            "head_dim": 8,
            "num_hidden_layers": 10,
            "num_kv_shared_layers": 4,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 8,
            "laurel_rank": 4,
            "altup_num_inputs": 2,
            "activation_sparsity_pattern": [0.0] * 10,
        },
    ),
    "gemma4": Family(
        "gemma4_text",
        {
            "sliding_window": WINDOW,
            "head_dim": 8,
            "global_head_dim": 16,
            "num_hidden_layers": 8,
            "num_kv_shared_layers": 2,
            "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2
            + ["sliding_attention", "full_attention"],
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 8,
        },
    ),
    "gpt_oss": Family(
        "gpt_oss",
        {
            "sliding_window": WINDOW,
            "head_dim": 8,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "rope_scaling": None,
        },
    ),
    "llama4": Family(
        "llama4_text",
        {
            "attention_chunk_size": WINDOW,
            "head_dim": 8,
            "intermediate_size_mlp": 48,
            "num_local_experts": 2,
            "attn_temperature_tuning": True,
            "floor_scale": 4,
        },
    ),
    "phi3": Family("phi3", {"sliding_window": WINDOW}),
    "cohere2": Family("cohere2", {"sliding_window": WINDOW}),
    "olmo3": Family("olmo3", {"sliding_window": WINDOW}),
    "smollm3": Family("smollm3", {"use_sliding_window": True, "sliding_window": WINDOW}),
}


EXPERTS = {"num_experts": 2, "num_local_experts": 2, "num_experts_per_tok": 1}
SHARED_EXPERTS = {"n_routed_experts": 2, "n_shared_experts": 1, "num_experts_per_tok": 1}
WINDOWED = {"sliding_window": WINDOW}
SWITCHED = {**WINDOWED, "use_sliding_window": True, "max_window_layers": 2}
MORE = {  # the other model types that `init --from` knows, and some that it does not
    "gpt2": Family("gpt2", {}),
    "opt": Family("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "ministral": Family("ministral", {**WINDOWED, "layer_types": MIXED * 2, "head_dim": 8}),
    "ministral3": Family("ministral3", {**WINDOWED, "head_dim": 8}),
    "mixtral": Family("mixtral", {**WINDOWED, **EXPERTS}),
    "starcoder2": Family("starcoder2", WINDOWED),
    "qwen2_moe": Family(
        "qwen2_moe", {**SWITCHED, **EXPERTS, "shared_expert_intermediate_size": 16}
    ),
    "qwen3_moe": Family("qwen3_moe", {**SWITCHED, **EXPERTS}),
    "gemma": Family("gemma", {"head_dim": 8}),
    "vaultgemma": Family(
        "vaultgemma",
        {**WINDOWED, "head_dim": 8, "query_pre_attn_scalar": 13, "attn_logit_softcapping": 3.0},
    ),
    "granite": Family("granite", {"attention_multiplier": 0.3}),
    "granitemoe": Family("granitemoe", {"attention_multiplier": 0.3, **EXPERTS}),
    "granitemoeshared": Family("granitemoeshared", {"attention_multiplier": 0.3, **EXPERTS}),
    "phimoe": Family("phimoe", {**WINDOWED, **EXPERTS}),
    "cohere": Family("cohere", {}),
    "olmo2": Family("olmo2", {}),
    "exaone4": Family("exaone4", WINDOWED),
    "exaone_moe": Family("exaone_moe", {**WINDOWED, **EXPERTS}),
    "afmoe": Family("afmoe", {**WINDOWED, **EXPERTS, "head_dim": 8}),
    "cwm": Family("cwm", {**WINDOWED, "head_dim": 8}),
    "dots1": Family("dots1", {**WINDOWED, **SHARED_EXPERTS, "max_window_layers": 2, "n_group": 1}),
    "glm4": Family("glm4", {"head_dim": 8}),
    "nemotron": Family("nemotron", {"head_dim": 8}),
    "olmoe": Family("olmoe", EXPERTS),
    "stablelm": Family("stablelm", {}),
    "gpt_neox": Family("gpt_neox", {}),
}

FAMILIES, MORE = (
    {name: family for name, family in families.items() if family.model_type in CONFIG_MAPPING}
    for families in (FAMILIES, MORE)
)

# Before transformers 5 some took no attention function, and OPT no mask function.
if "cache" not in inspect.signature(LlamaForCausalLM.forward).parameters:
    MORE = {
        name: family
        for name, family in MORE.items()
        if MODEL_FOR_CAUSAL_LM_MAPPING[
            CONFIG_MAPPING[family.model_type]
        ]._supports_attention_backend
        and name != "opt"
    }

# The name of a cache in a forward and in `generate`; the second one before transformers 5.24.
KEYWORD = (
    "cache"
    if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters
    else "past_key_values"
)


def given(cache: Any) -> dict[str, Any]:
    """A cache, as a model takes it."""
    return {KEYWORD: cache}


def no_cache(model: Any) -> dict[str, Any]:
    """What runs a model without one. Gemma 3n shared keys only in a cache before transformers 5: it gets transformers' own."""
    if KEYWORD == "cache":
        return {"use_cache": False}
    return given(DynamicCache(config=model.config))


class Tiny(NamedTuple):
    """`cache(...)` makes the family's HFCache; `hf` is the emitted module."""

    model: Any
    hf: Any
    policy: str

    def cache(self, backend: str = "torch") -> Any:
        """By default without C++ to build; test_families takes every backend."""
        return self.hf.TinyHFCache(self.model.config, backend=backend)


@functools.cache
def tiny(name: str) -> Tiny:
    """The family's model with random weights, float32, and the package made from its saved config.json."""
    family = {**FAMILIES, **MORE}[name]
    config = CONFIG_MAPPING[family.model_type](**{**common(family.model_type), **family.fields})
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    spread(model)
    text = policy_text(saved(config), "Tiny")
    return Tiny(model, load(text, f"tiny_{name}").hf, text)


def common(model_type: str) -> dict[str, Any]:
    """Those of the common fields that the model type has; GPT-2 and OPT have no kv heads to set."""
    attributes = {
        **CONFIG_MAPPING[model_type]().to_dict(),
        **CONFIG_MAPPING[model_type].attribute_map,
    }
    return {name: COMMON[name] for name in COMMON if name in attributes or name.endswith("_id")}


def spread(model: Any) -> None:
    """Larger weights: attention that looks at all keys alike would hide a wrong mask."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and (
                "q_proj" in name or "k_proj" in name or "qkv_proj" in name
            ):
                parameter.mul_(12)
            if name.endswith("sinks"):
                parameter.copy_(torch.linspace(-2, 2, parameter.numel()))


def saved(config: Any) -> dict[str, Any]:
    """The config.json that transformers writes."""
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))


def load(text: str, stem: str) -> Any:
    """The package of a policy text, with its `hf` imported."""
    import importlib

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{stem}.kv"
        path.write_text(text, encoding="utf-8")
        package = kvgen.load(path)
    importlib.import_module(f"{package.__name__}.hf")
    return package


def backend_or_skip(name: str) -> str:
    """The backend, where it can run."""
    if name == "cpu" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler")
    if name == "triton":
        pytest.importorskip("triton")
        if os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("the models are on the CPU, where triton needs its interpreter")
    return name
