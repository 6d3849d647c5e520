"""What does not fit is refused by name, before anything is stored."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")

from tests.hf.models import (
    FAMILIES,
    KEYWORD,
    VOCABULARY,
    WINDOW,
    backend_or_skip,
    given,
    load,
    tiny,
)


def ids(rows=1, columns=9):
    torch.manual_seed(3)
    return torch.randint(3, VOCABULARY, (rows, columns))


def forward(case, cache, tokens, **options):
    case.model.set_attn_implementation("kvgen")
    with torch.no_grad():
        return case.model(tokens, **given(cache), **options).logits


def changed(family, **fields):
    config = copy.deepcopy(tiny(family).model.config)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize("family", FAMILIES)
def test_the_config_it_was_made_from_fits(family):
    assert tiny(family).cache().get_seq_length() == 0


@pytest.mark.parametrize(
    ("family", "fields", "named"),
    [
        ("llama", {"num_key_value_heads": 4}, "num_key_value_heads"),
        ("llama", {"num_attention_heads": 8}, "num_attention_heads"),
        ("llama", {"head_dim": 16}, "head_dim"),
        ("llama", {"num_hidden_layers": 5}, "num_hidden_layers"),
        ("mistral", {"sliding_window": WINDOW + 1}, "sliding_window"),
        ("mistral", {"sliding_window": None}, "layer_types"),
        ("llama4", {"attention_chunk_size": WINDOW - 1}, "attention_chunk_size"),
        ("gemma3", {"layer_types": ["sliding_attention"] * 7}, "layer_types"),
        ("gemma3", {"query_pre_attn_scalar": 64}, "query_pre_attn_scalar"),
        ("gemma2", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma2", {"attn_logit_softcapping": None}, "attn_logit_softcapping"),
        ("gemma3n", {"num_kv_shared_layers": 0}, "num_kv_shared_layers"),
        ("gemma3n", {"num_kv_shared_layers": 5}, "num_kv_shared_layers"),
    ],
)
def test_a_config_that_disagrees(family, fields, named):
    case = tiny(family)
    with pytest.raises(ValueError, match=named):
        case.hf.TinyHFCache(changed(family, **fields))


@pytest.mark.parametrize(
    ("model", "made_for", "named"),
    [
        ("llama", "smollm2", "num_key_value_heads"),
        ("mistral", "llama", "layer_types"),
        ("llama4", "llama", "layer_types"),
        ("gpt_oss", "qwen2", "layer_types"),
        ("llama", "gemma3n", "num_hidden_layers"),
    ],
)
def test_a_cache_of_another_model_without_a_config(model, made_for, named):
    """The first forward compares what it can see; nothing is stored."""
    cache = tiny(made_for).hf.TinyHFCache()
    with pytest.raises(ValueError, match=named):
        forward(tiny(model), cache, ids())
    assert cache.offsets in ((), (0,))


def test_scores_are_compared_in_the_first_call():
    case = tiny("gpt_oss")
    without = load(case.policy.replace("    sink_logits\n", ""), "tiny_no_sinks").hf
    with pytest.raises(ValueError, match="s_aux"):
        forward(case, without.TinyHFCache(case.model.config), ids())
    scaled = load(
        tiny("llama").policy.replace("    storage ", "    scale 0.5\n    storage "), "tiny_scaled"
    ).hf
    with pytest.raises(ValueError, match="scaling"):
        forward(tiny("llama"), scaled.TinyHFCache(tiny("llama").model.config), ids())


def test_a_full_model_may_run_on_a_window_without_a_config():
    case = tiny("llama")
    text = case.policy.replace("storage  contiguous", "window 4 storage ring")
    bounded = load(text, "tiny_bounded").hf
    cache = bounded.TinyHFCache()
    forward(case, cache, ids(columns=30))
    size = cache.nbytes
    forward(case, cache, ids(columns=30))
    assert cache.nbytes <= size
    with pytest.raises(ValueError, match="layer_types"):
        bounded.TinyHFCache(case.model.config)


def test_the_attention_was_not_set():
    case, cache = tiny("mistral"), tiny("mistral").cache()
    case.model.set_attn_implementation("eager")
    with pytest.raises(RuntimeError, match="set_attn_implementation"), torch.no_grad():
        case.model(ids(), **given(cache))


def test_no_cache_was_given():
    case = tiny("mistral")
    case.model.set_attn_implementation("kvgen")
    with pytest.raises(RuntimeError, match="HFCache"), torch.no_grad():
        case.model(ids(), use_cache=False)


def test_an_encoder_is_not_run_causally():
    """Without its decoder's flag BERT's kind asks for a mask of both directions, and gives its keys to a cache all the same."""
    from transformers import RobertaConfig, RobertaForCausalLM

    config = RobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
    )
    model = RobertaForCausalLM(config).eval()
    model.set_attn_implementation("kvgen")
    text = tiny("llama").policy.replace("kv 2", "kv 4")
    # Before transformers 5 its attention takes no other function.
    with pytest.raises((ValueError, RuntimeError), match="bidirectional|never attended"):
        model(ids(), **given(load(text, "tiny_encoder").hf.TinyHFCache()))


def images(case_config):
    """A tiny Llava, and a prompt with an image of four tokens in it."""
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    vision = {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 16}
    vision |= {"num_hidden_layers": 2, "num_attention_heads": 2, "projection_dim": 16}
    config = LlavaConfig(
        text_config=case_config.to_dict(),
        vision_config={**vision, "image_size": 28, "patch_size": 14},
        image_token_index=VOCABULARY - 1,
        image_seq_length=4,
    )
    torch.manual_seed(7)
    tokens = ids(columns=20) % (VOCABULARY - 2)
    tokens[0, 3:7] = VOCABULARY - 1
    model = LlavaForConditionalGeneration(config).eval()
    return model, {"input_ids": tokens, "pixel_values": torch.randn(1, 3, 28, 28)}


def test_a_model_that_sees_images():
    """The cache is for its language model; given to the vision tower too, the message says how not to."""
    case = tiny("llama")
    model, inputs = images(case.model.config)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        want = model(**inputs, use_cache=False).logits
        model.set_attn_implementation("kvgen")
        with pytest.raises(RuntimeError, match="text_config"):
            model(**inputs, **given(case.hf.TinyHFCache(model.config, backend="torch")))
        model.set_attn_implementation("eager")
        model.set_attn_implementation({"text_config": "kvgen"})
        got = model(**inputs, **given(case.hf.TinyHFCache(model.config, backend="torch"))).logits
    torch.testing.assert_close(got, want, rtol=0, atol=1e-4)


def test_another_batch_in_mid_flight():
    case, cache = tiny("mistral"), tiny("mistral").cache()
    forward(case, cache, ids(rows=2))
    with pytest.raises(ValueError, match="reset"):
        forward(case, cache, ids(rows=3))
    assert cache.offsets == (9, 9)
    forward(case, cache, ids(rows=2))


@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_steps_that_are_not_like_the_last(backend):
    """A decode step takes a short way past what its layer checked at the last one; what differs is still refused."""
    case = tiny("mistral")
    cache, plain = case.cache(backend_or_skip(backend)), case.cache()
    half = copy.deepcopy(case.model).to(torch.bfloat16)
    for columns in (5, 1, 1):
        forward(case, cache, ids(rows=2, columns=columns))
        forward(case, plain, ids(rows=2, columns=columns))
    with pytest.raises(ValueError, match="reset"):
        forward(case, cache, ids(rows=3, columns=1))
    with pytest.raises(ValueError, match="bfloat16"), torch.no_grad():
        half(ids(rows=2, columns=1), **given(cache))
    with pytest.raises(ValueError, match="attention_mask must be"):
        forward(case, cache, ids(rows=2, columns=1), attention_mask=torch.ones(2, 7))
    hole = torch.tensor([[1] * 8, [1] * 6 + [0, 1]])
    with pytest.raises(ValueError, match="row 1"):
        forward(case, cache, ids(rows=2, columns=1), attention_mask=hole)
    assert cache.offsets == (7, 7)
    ended = torch.tensor([[1] * 8, [1] * 7 + [0]])  # a row that is done is padding from now on
    for which in (cache, plain):
        forward(case, which, ids(rows=2, columns=1), attention_mask=ended)
        assert which.offsets == (8, 7)
        which.batch_select_indices([1])
    got, want = (forward(case, which, ids(columns=1)) for which in (cache, plain))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def test_another_dtype_in_mid_flight():
    case, cache = tiny("llama"), tiny("llama").cache()
    forward(case, cache, ids())
    half = copy.deepcopy(case.model).to(torch.bfloat16)
    with pytest.raises(ValueError, match="bfloat16"), torch.no_grad():
        half(ids(), **given(cache))


@pytest.mark.parametrize("length", [3, 9, 14])
def test_a_prompt_that_is_shorter_than_the_cache(length):
    case, cache = tiny("mistral"), tiny("mistral").cache()
    forward(case, cache, ids(columns=18))
    short = ids(columns=length)
    # Before transformers 5 `generate` itself stumbles over a prompt without new tokens.
    refusals = (
        {ValueError: "reset"}
        if KEYWORD == "cache"
        else {ValueError: "reset", IndexError: "index -1"}
    )
    with pytest.raises(tuple(refusals)) as refused:
        case.model.generate(
            short,
            attention_mask=torch.ones_like(short),
            **given(cache),
            max_new_tokens=2,
            do_sample=False,
        )
    assert refusals[refused.type] in str(refused.value)
    assert cache.offsets == (18,)


@pytest.mark.parametrize("row", [[1, 1, 0, 1, 1, 1], [0, 1, 0, 1, 1, 1], [1, 1, 1, 0, 0, 1]])
def test_a_hole_in_a_row(row):
    case, cache = tiny("mistral"), tiny("mistral").cache()
    with pytest.raises(ValueError, match="padding between the tokens of row 1"):
        forward(case, cache, ids(rows=2, columns=6), attention_mask=torch.tensor([[1] * 6, row]))
    assert cache.offsets == (0, 0)
    forward(
        case, cache, ids(rows=2, columns=6), attention_mask=torch.tensor([[1] * 6, [0] + [1] * 5])
    )
    assert cache.offsets == (6, 5)


def test_a_hole_between_two_forwards():
    case, cache = tiny("mistral"), tiny("mistral").cache()
    tokens = ids(rows=2, columns=4)
    forward(case, cache, tokens, attention_mask=torch.tensor([[1] * 4, [1, 1, 0, 0]]))
    after = torch.tensor([[1] * 5, [1, 1, 0, 0, 1]])
    with pytest.raises(ValueError, match="row 1"):
        forward(case, cache, tokens[:, :1], attention_mask=after)
    with pytest.raises(ValueError, match="row 1"):
        forward(case, cache, tokens[:, :2], attention_mask=torch.cat([after, after[:, 4:]], 1))
    assert cache.offsets == (4, 2)


def test_a_mask_that_tells_another_past():
    case, cache = tiny("mistral"), tiny("mistral").cache()
    forward(case, cache, ids(columns=5), attention_mask=torch.tensor([[0, 0, 1, 1, 1]]))
    with pytest.raises(ValueError, match="5 tokens in row 0"):
        forward(case, cache, ids(columns=2), attention_mask=torch.ones(1, 7))
    with pytest.raises(ValueError, match="attention_mask must be"):
        forward(case, cache, ids(columns=2), attention_mask=torch.ones(1, 6))
    assert cache.offsets == (3,)


def test_masks_that_are_not_of_columns():
    case, cache = tiny("llama"), tiny("llama").cache()
    with pytest.raises(ValueError, match="2-D mask"):
        forward(
            case, cache, ids(columns=3), attention_mask=torch.ones(1, 1, 3, 3, dtype=torch.bool)
        )


@pytest.mark.parametrize("given_instead", ["config.json", {"model_type": "mistral"}, "the model"])
def test_something_else_than_a_config(given_instead):
    case = tiny("mistral")
    with pytest.raises(ValueError, match="give model.config"):
        case.hf.TinyHFCache(case.model if given_instead == "the model" else given_instead)


def test_more_columns_than_there_are():
    case, cache = tiny("mistral"), tiny("mistral").cache()
    forward(case, cache, ids())
    with pytest.raises(RuntimeError, match="holds 9"):
        cache.crop(-10)
    for wrong in (-2, 1.5):
        with pytest.raises(ValueError, match="n must be"):
            cache.trim(wrong)
    assert cache.offsets == (9,)


def test_a_crop_that_a_ring_cannot_undo():
    case, cache = tiny("gemma3"), tiny("gemma3").cache()
    forward(case, cache, ids(columns=40))
    for _ in range(3):
        forward(case, cache, ids(columns=1))
    with pytest.raises(RuntimeError, match="activate_past_recording"):
        cache.crop(-20)
    assert cache.offsets == (43,)
    assert cache.get_seq_length(0) == cache.get_seq_length(2) == 43
    cache.crop(0)
    cache.crop(-2)
    cache.crop(40)
    assert cache.offsets == (40,)


def test_a_forward_that_stopped_midway():
    case, cache = tiny("gemma3"), tiny("gemma3").cache()
    forward(case, cache, ids(columns=4))
    layer = case.model.model.layers[3]
    handle = layer.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        with pytest.raises(KeyboardInterrupt):
            forward(case, cache, ids(columns=2))
    finally:
        handle.remove()
    with pytest.raises(RuntimeError, match="stopped midway"):
        forward(case, cache, ids(columns=2))
    cache.reset()
    forward(case, cache, ids(columns=2))
    assert cache.offsets == (2,)


def test_training_needs_a_stateless_policy():
    case = tiny("mistral")
    case.model.set_attn_implementation("kvgen")
    with pytest.raises(RuntimeError, match="stateless"):
        case.model(ids(), **given(case.cache()))
