"""Training on stateless caches: losses and gradients as with transformers' own masks, also under checkpointing."""

from __future__ import annotations

import re

import pytest
import torch

pytest.importorskip("transformers")

from tests.hf.models import VOCABULARY, WINDOW, given, load, no_cache, tiny
from tests.hf.test_speculative import example

FAMILIES = ("mistral", "gemma3n", "gpt_oss", "llama4", "gemma2")


def stateless(family):
    """The family's package with every policy made stateless."""
    text = re.sub(r"    storage .*\n", "    stateless\n", tiny(family).policy)
    text = re.sub(r"    trim .*\n", "", text).replace("padding  left right", "padding  right")
    return load(text, f"tiny_{family}_training").hf


def batch(padded=True):
    torch.manual_seed(4)
    ids = torch.randint(3, VOCABULARY, (3, 4 * WINDOW))
    mask = torch.ones_like(ids)
    if padded:
        mask[1, 5:] = 0
        mask[2, 3 * WINDOW :] = 0
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def step(model, inputs, **options):
    """Loss and gradients of one training step."""
    model.zero_grad()
    loss = model(**inputs, **options).loss
    loss.backward()
    return loss.detach(), {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.fixture
def training():
    """Puts a family's shared model into training and back."""
    used = []

    def model_of(family):
        used.append(tiny(family).model)
        return used[-1].train()

    yield model_of
    for model in used:
        model.gradient_checkpointing_disable()
        model.eval()
        model.zero_grad()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_losses_and_gradients_are_the_models_own(family, padded, training):
    model, inputs = training(family), batch(padded)
    model.set_attn_implementation("eager")
    loss, gradients = step(model, inputs, **no_cache(model))
    cache = stateless(family).TinyHFCache(model.config)
    model.set_attn_implementation("kvgen")
    ours, found = step(model, inputs, **given(cache))
    torch.testing.assert_close(ours, loss, rtol=1e-5, atol=1e-5)
    assert found.keys() == gradients.keys()
    for name, want in gradients.items():
        limit = 1e-4 * max(1.0, float(want.abs().max()))
        torch.testing.assert_close(found[name], want, rtol=0, atol=limit, msg=name)
    assert cache.nbytes == 0
    assert cache.get_seq_length() == 0


@pytest.mark.parametrize("family", ["mistral", "gpt_oss", "llama4"])
def test_checkpointing_changes_nothing(family, training):
    model, inputs = training(family), batch()
    cache = stateless(family).TinyHFCache(model.config)
    model.set_attn_implementation("kvgen")
    loss, gradients = step(model, inputs, **given(cache))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    ours, found = step(model, inputs, **given(cache))
    assert torch.equal(ours, loss)
    assert all(torch.equal(found[name], gradients[name]) for name in gradients)


def test_left_padding_is_refused(training):
    model, inputs = training("mistral"), batch()
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)
    model.set_attn_implementation("kvgen")
    with pytest.raises(ValueError, match="right"):
        model(**inputs, **given(stateless("mistral").TinyHFCache()))


def test_generate_is_refused():
    case = tiny("mistral")
    case.model.set_attn_implementation("kvgen")
    ids = batch(padded=False)["input_ids"]
    cache = stateless("mistral").TinyHFCache(case.model.config)
    with pytest.raises(RuntimeError, match="stateless"):
        case.model.generate(ids, **given(cache), max_new_tokens=3, do_sample=False)


def test_the_example_trains_as_without_kvgen():
    finetune = example("finetune")
    theirs, ours = finetune.train("sdpa", 4), finetune.train("kvgen", 4)
    for a, b in zip(theirs["losses"], ours["losses"], strict=True):
        assert abs(a - b) < 1e-4
    assert ours["losses"][-1] < ours["losses"][0]
