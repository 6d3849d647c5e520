"""The speculative example: the same tokens as plain greedy decoding, far past the window."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import kvgen

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PAST_THE_WINDOW = 1000


def example(name):
    if name not in sys.modules:
        sys.path.insert(0, str(EXAMPLES))
        try:
            spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(EXAMPLES))
    return sys.modules[name]


@pytest.fixture(scope="module")
def package():
    return kvgen.load(EXAMPLES / "tiny.kv")


PROMPTS = {"one row": [[5, 6, 7]], "ragged rows": [[1, 2, 3], [4] * 40, [5, 6]]}


@pytest.mark.parametrize(
    ("prompts", "backend"),
    [("one row", "torch"), ("ragged rows", "torch"), ("ragged rows", "auto")],
)
def test_speculative_equals_greedy(package, prompts, backend):
    speculative, own_model = example("speculative"), example("own_model")
    model, draft = speculative.models()
    prompts, tokens = PROMPTS[prompts], PAST_THE_WINDOW + 24
    rows = len(prompts)
    plain = own_model.generate(model, package.TargetCaches(rows, backend=backend), prompts, tokens)
    caches = package.TargetCaches(rows, backend=backend)
    drafts = package.DraftCaches(rows, backend=backend)
    fast, given = speculative.speculate(model, caches, draft, drafts, prompts, tokens)
    assert fast == plain
    assert 2 < given < 8, "drafts must be accepted in part, else nothing was taken back"
    assert caches.offsets == drafts.offsets
    assert rows == 1 or len(set(caches.offsets)) > 1
    ring = package.LocalCache(rows).nbytes
    assert all(cache.nbytes == ring for cache in caches.layers[:3])


def test_the_own_model_is_itself_without_a_cache(package):
    """Decode on the caches against one forward over the whole text, each row alone."""
    own_model = example("own_model")
    torch.manual_seed(0)
    model = own_model.LanguageModel(layers=4).eval()
    prompts = PROMPTS["ragged rows"]
    texts = own_model.generate(model, package.TargetCaches(3), prompts, 60)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = torch.tensor([prompt + text])
        with torch.no_grad():
            logits = model(ids, package.TargetCaches(1))[0]
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == text
