"""`generate` in all its modes: tokens and logits as with the model's own cache."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from tests.hf import models
from tests.hf.models import VOCABULARY, WINDOW, given, tiny

FAMILIES = ("mistral", "gemma3n", "llama4")
OTHERS = sorted({"gemma2", "gemma3", "gemma4", "gpt_oss", "qwen2"} & models.FAMILIES.keys())
GREEDY = {"do_sample": False}
MODES = {
    "greedy": GREEDY,
    "chunked prefill": {**GREEDY, "prefill_chunk_size": 5},
    "sampling": {"do_sample": True, "temperature": 1.3},
    "several answers": {"do_sample": True, "num_return_sequences": 3},
    "beams": {**GREEDY, "num_beams": 3},
    "beams, several answers": {**GREEDY, "num_beams": 4, "num_return_sequences": 2},
    "sampled beams": {"do_sample": True, "num_beams": 2},
}
NEW = 3 * WINDOW


def prompt(rows=2, length=2 * WINDOW + 1, padding=(0, 4)):
    torch.manual_seed(11)
    ids = torch.randint(3, VOCABULARY, (rows, length))
    mask = torch.ones_like(ids)
    for row, columns in enumerate(padding[:rows]):
        mask[row, :columns] = 0
    return {"input_ids": ids, "attention_mask": mask}


def run(model, attention, cache, inputs, **options):
    model.set_attn_implementation(attention)
    torch.manual_seed(5)
    return model.generate(
        **inputs,
        **({} if cache is None else given(cache)),
        max_new_tokens=options.pop("max_new_tokens", NEW),
        eos_token_id=-1,
        return_dict_in_generate=True,
        output_logits=True,
        **options,
    )


def check_same(case, inputs, cache=None, **options):
    theirs = run(case.model, "eager", None, inputs, **options)
    ours = run(case.model, "kvgen", case.cache() if cache is None else cache, inputs, **options)
    assert torch.equal(ours.sequences, theirs.sequences)
    assert len(ours.logits) == len(theirs.logits)
    for got, want in zip(ours.logits, theirs.logits, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4 * max(1.0, float(want.abs().max())))
    return ours


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_generate_is_as_with_the_models_own_cache(family, mode):
    check_same(tiny(family), prompt(), **MODES[mode])


@pytest.mark.parametrize("family", OTHERS)
def test_greedy_in_the_other_families(family):
    check_same(tiny(family), prompt(), **GREEDY)


@pytest.mark.parametrize("mode", ["prompt lookup", "draft model", "sampled draft model"])
@pytest.mark.parametrize("family", ["mistral", "gemma3", "llama4", "smollm2"])
def test_drafts_are_verified_past_the_window(family, mode):
    """Rejected drafts are taken back from rings that wrapped, and from a prompt longer than the ring."""
    case = tiny(family)
    inputs = prompt(rows=1, length=5 * WINDOW, padding=())
    inputs["input_ids"][0, WINDOW : 3 * WINDOW] = inputs["input_ids"][0, 3 * WINDOW : 5 * WINDOW]
    draft = tiny("mistral" if family == "smollm2" else "smollm2").model
    draft.set_attn_implementation("eager")
    options = {
        "prompt lookup": {"do_sample": False, "prompt_lookup_num_tokens": 4},
        "draft model": {"do_sample": False, "assistant_model": draft},
        "sampled draft model": {"do_sample": True, "assistant_model": draft},
    }[mode]
    cache = case.cache()
    ours = check_same(case, inputs, cache, max_new_tokens=5 * WINDOW, **options)
    assert cache.get_seq_length() == ours.sequences.shape[1] - 1
    assert cache.offsets == (cache.get_seq_length(),)
    if mode != "sampled draft model":
        plain = run(case.model, "kvgen", case.cache(), inputs, max_new_tokens=5 * WINDOW, **GREEDY)
        # transformers 4.57 gives a token more than it was asked for
        assert torch.equal(plain.sequences, ours.sequences[:, : plain.sequences.shape[1]])


def test_drafts_longer_than_a_ring_without_slack():
    """A ring of 6 slots takes back 12 of 13 columns: its state before them is kept until the crop."""
    from tests.hf.models import load

    case = tiny("mistral")
    text = case.policy.replace("ring slack 7", "ring").replace("guarded bypass 7", "guarded")
    tight = load(text, "tiny_tight").hf
    ids = prompt(rows=1, length=4 * WINDOW, padding=())["input_ids"]
    case.model.set_attn_implementation("kvgen")
    cache, plain = tight.TinyHFCache(case.model.config), tight.TinyHFCache(case.model.config)
    for layer in cache.layers:
        layer.activate_past_recording()
    with torch.no_grad():
        case.model(ids[:, :8], **given(cache))
        case.model(ids[:, 8:21], **given(cache))
        cache.crop(-12)
        got = case.model(ids[:, 9:], **given(cache)).logits
        want = case.model(ids, **given(plain)).logits[:, 9:]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-4)
    assert cache.offsets == plain.offsets == (4 * WINDOW,)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_goes_on(family):
    """The whole conversation is given each turn, the cache holds what was said before."""
    case, cache = tiny(family), None
    inputs = prompt(rows=2)
    for turn in range(3):
        cache = case.cache() if cache is None else cache
        ours = check_same(case, inputs, cache, max_new_tokens=WINDOW, **GREEDY)
        torch.manual_seed(turn)
        new = torch.randint(3, VOCABULARY, (2, 5))
        ids = torch.cat([ours.sequences, new], 1)
        ones = torch.ones_like(ids[:, inputs["attention_mask"].shape[1] :])
        inputs = {
            "input_ids": ids,
            "attention_mask": torch.cat([inputs["attention_mask"], ones], 1),
        }
    assert cache.get_seq_length() == ours.sequences.shape[1] - 1


@pytest.mark.parametrize("family", ["mistral", "gemma3n"])
def test_reset_and_another_batch(family):
    case = tiny(family)
    cache = case.cache()
    for rows in (3, 1, 2):
        check_same(case, prompt(rows=rows), cache, **GREEDY)
        assert cache.caches.batch_size == rows
        cache.reset()
        assert cache.get_seq_length() == 0


def test_a_reset_cache_of_the_same_batch_keeps_its_storage():
    case = tiny("mistral")
    cache = case.cache()
    check_same(case, prompt(), cache, **GREEDY)
    caches = cache.caches
    cache.reset()
    check_same(case, prompt(), cache, **GREEDY)
    assert cache.caches is caches


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_is_computed_once_and_copied(family):
    """The way of transformers' documentation: deepcopy a cache that holds the common beginning."""
    case = tiny(family)
    inputs = prompt(rows=1, padding=())
    prefix = case.cache()
    case.model.set_attn_implementation("kvgen")
    with torch.no_grad():
        case.model(inputs["input_ids"][:, :9], **given(prefix))
    for seed in range(2):
        torch.manual_seed(seed)
        tail = torch.randint(3, VOCABULARY, (1, 4))
        ids = torch.cat([inputs["input_ids"][:, :9], tail], 1)
        both = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        check_same(case, both, copy.deepcopy(prefix), **GREEDY)
    assert prefix.offsets == (9,)


def test_beams_of_a_prefilled_cache():
    """Beam search does not expand a filled cache: `batch_repeat_interleave` first."""
    case = tiny("mistral")
    inputs = prompt(rows=2, padding=())
    cache = case.cache()
    case.model.set_attn_implementation("kvgen")
    with torch.no_grad():
        case.model(inputs["input_ids"][:, :9], **given(cache))
    cache.batch_repeat_interleave(3)
    check_same(case, inputs, cache, **GREEDY, num_beams=3)


def test_rows_are_selected():
    case = tiny("gemma3n")
    ids = prompt(rows=3, padding=())["input_ids"]
    case.model.set_attn_implementation("kvgen")
    cache, alone = case.cache(), case.cache()
    with torch.no_grad():
        case.model(ids[:, :9], **given(cache))
        cache.batch_select_indices(torch.tensor([False, True, True]))
        cache.batch_select_indices(torch.tensor([1]))
        got = case.model(ids[2:, 9:], **given(cache)).logits
        case.model(ids[2:, :9], **given(alone))
        want = case.model(ids[2:, 9:], **given(alone)).logits
    torch.testing.assert_close(got, want)


def test_two_packages_are_interchangeable():
    """Both register the attention `kvgen`; whichever was imported last serves the other's caches."""
    first, second = tiny("mistral"), tiny("gemma3")
    assert first.hf.__name__ != second.hf.__name__
    import importlib

    for case in (second, first):
        importlib.reload(importlib.import_module(f"{case.hf.__package__}._hf"))
        check_same(first, prompt(), first.cache(), **GREEDY)
        check_same(second, prompt(), second.cache(), **GREEDY)


def test_a_decode_step_costs_few_calls():
    """Beside the append and the attention: what transformers calls, and the checks that a step needs."""
    case = tiny("mistral")
    cache, calls = case.cache(), []
    case.model.set_attn_implementation("kvgen")

    def count(frame, event, _):
        if event == "call" and Path(frame.f_code.co_filename).name.startswith("_hf"):
            calls.append(frame.f_code.co_name)

    with torch.no_grad():
        for column in range(WINDOW + 3):
            mask = torch.ones(1, column + 1, dtype=torch.long)
            calls.clear()
            sys.setprofile(count)
            try:
                case.model(torch.tensor([[5]]), **given(cache), attention_mask=mask)
            finally:
                sys.setprofile(None)
    layers = len(cache.layers)
    assert calls.count("step") == layers
    assert len(calls) <= 40 + 9 * layers
