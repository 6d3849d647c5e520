"""Every family of models: logits on the emitted cache against the model without one, at every position."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")

from tests.hf.models import (
    FAMILIES,
    MORE,
    VOCABULARY,
    WINDOW,
    backend_or_skip,
    given,
    load,
    no_cache,
    tiny,
)

PROMPT, LENGTH = 2 * WINDOW + 3, 2 * WINDOW + 3 + 3 * WINDOW
# Prefill whole, in chunks around the window's size, and column by column; then decode.
CHUNKS = {
    "whole": [PROMPT],
    "chunks": [4, WINDOW + 1, 1, PROMPT - WINDOW - 6],
    "columns": [1] * PROMPT,
    "late chunk": [3] + [1] * 7 + [PROMPT - 10],
}


CASES = [
    *((family, chunks, "torch") for family in FAMILIES for chunks in CHUNKS),
    *((family, "whole", "cpu") for family in FAMILIES),
    ("mistral", "late chunk", "cpu"),
    ("gpt_oss", "whole", "triton"),
    *(
        pytest.param(family, chunks, "cpu", marks=pytest.mark.slow)
        for family in FAMILIES
        for chunks in CHUNKS
        if chunks != "whole" and (family, chunks) != ("mistral", "late chunk")
    ),
]
PADDED_CASES = [
    *((family, "chunks", "torch") for family in FAMILIES),
    ("mistral", "whole", "torch"),
    ("gemma3", "late chunk", "torch"),
    ("mistral", "chunks", "cpu"),
    ("llama4", "chunks", "cpu"),
    *(
        pytest.param(family, chunks, "cpu", marks=pytest.mark.slow)
        for family in FAMILIES
        for chunks in ("chunks", "late chunk")
        if (family, chunks) not in (("mistral", "chunks"), ("llama4", "chunks"))
    ),
]


def reference(model, ids, mask=None):
    model.set_attn_implementation("eager")
    positions = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        return model(ids, attention_mask=mask, position_ids=positions, **no_cache(model)).logits


def with_cache(model, cache, ids, widths, mask=None):
    """Logits of all columns, given in parts of these widths and then one at a time."""
    model.set_attn_implementation("kvgen")
    widths = [*widths, *[1] * (ids.shape[1] - sum(widths))]
    outs, a = [], 0
    for width in widths:
        b = a + width
        extra = {}
        if mask is not None:
            positions = (mask[:, :b].cumsum(1) - 1).clamp(min=0)[:, a:b]
            extra = {"attention_mask": mask[:, :b], "position_ids": positions}
        with torch.no_grad():
            outs.append(model(ids[:, a:b], **given(cache), **extra).logits)
        a = b
    return torch.cat(outs, 1)


def close(got, want, real=None):
    difference = (got - want).abs()
    if real is not None:
        difference = difference[real]
    return float(difference.max() / max(1.0, float(want.abs().max())))


@pytest.mark.parametrize(("family", "chunks", "backend"), CASES)
def test_logits_are_the_models_own(family, chunks, backend):
    case = tiny(family)
    torch.manual_seed(1)
    length = LENGTH if backend != "triton" else PROMPT + 3  # its interpreter takes its time
    ids = torch.randint(3, VOCABULARY, (2, length))
    cache = case.cache(backend_or_skip(backend))
    want = reference(case.model, ids)
    assert close(with_cache(case.model, cache, ids, CHUNKS[chunks]), want) < 1e-4
    assert cache.offsets == (length, length)
    assert cache.caches.layers[0].backend == backend


@pytest.mark.parametrize("family", MORE)
def test_more_families(family):
    """Two rows, one of them padded on the left, in chunks and then column by column."""
    case = tiny(family)
    torch.manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (2, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    want = reference(case.model, ids, mask)
    cache = case.cache()
    got = with_cache(case.model, cache, ids, CHUNKS["chunks"], mask)
    assert close(got, want, mask.bool()) < 1e-4
    assert cache.offsets == (LENGTH, LENGTH - 5)


@pytest.mark.parametrize(("family", "chunks", "backend"), PADDED_CASES)
def test_left_padded_rows_are_the_models_own(family, chunks, backend):
    case = tiny(family)
    torch.manual_seed(2)
    ids = torch.randint(3, VOCABULARY, (3, LENGTH))
    mask = torch.ones_like(ids)
    for row, padding in enumerate([0, 5, PROMPT - 1]):
        mask[row, :padding] = 0
    want = reference(case.model, ids, mask)
    cache = case.cache(backend_or_skip(backend))
    got = with_cache(case.model, cache, ids, CHUNKS[chunks], mask)
    assert close(got, want, mask.bool()) < 1e-4
    assert cache.offsets == tuple(mask.sum(1).tolist())


@pytest.mark.parametrize("family", ["mistral", "gemma3", "llama4"])
def test_right_padded_rows_are_the_models_own(family):
    case = tiny(family)
    torch.manual_seed(3)
    ids = torch.randint(3, VOCABULARY, (3, PROMPT))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    mask[2, WINDOW + 2 :] = 0
    want = reference(case.model, ids, mask)
    got = with_cache(case.model, case.cache(), ids, [5, PROMPT - 5], mask)
    assert close(got, want, mask.bool()) < 1e-4


def test_a_wrong_window_would_be_seen():
    """The models are sensitive enough: a policy that is one position off gives other logits."""
    case = tiny("mistral")
    off = load(case.policy.replace(f"window   {WINDOW}", f"window   {WINDOW + 1}"), "tiny_off")
    ids = torch.randint(3, VOCABULARY, (1, LENGTH))
    want = reference(case.model, ids)
    case.model.config.sliding_window += 1
    try:
        got = with_cache(case.model, off.hf.TinyHFCache(), ids, [PROMPT])
    finally:
        case.model.config.sliding_window -= 1
    assert close(got, want) > 1e-2


@pytest.mark.parametrize(
    ("family", "backend"),
    [
        *((family, "torch") for family in ("mistral", "gemma2", "gemma3", "gpt_oss")),
        ("gpt_oss", "cpu"),
    ],
)
def test_in_half_precision_as_near_to_float64_as_the_model(family, backend):
    """The cache is of the keys' dtype. Rounding differs from the model's own, whose softmax is in bfloat16 in places.

    gpt-oss runs all its experts here: with a choice to make, a router that was rounded otherwise takes another expert now
    and then, in the model's own run as often as in ours, and its logits are 0.1 off in both.
    """
    case = tiny(family)
    half = copy.deepcopy(case.model).to(torch.bfloat16)
    exact = copy.deepcopy(half).double()
    if family == "gpt_oss":
        for model in (half, exact):
            if hasattr(model, "set_experts_implementation"):  # before transformers 5 there is one
                model.set_experts_implementation("eager")
            for layer in model.model.layers:
                layer.mlp.router.top_k = model.config.num_local_experts
    torch.manual_seed(4)
    ids = torch.randint(3, VOCABULARY, (4, LENGTH))
    cache = case.cache(backend_or_skip(backend))
    got = with_cache(half, cache, ids, [PROMPT])
    want = reference(exact, ids)
    assert cache.caches.layers[0].dtype is torch.bfloat16
    assert close(got.double(), want) < 4e-2
    own = mean_error(reference(half, ids), want)
    assert mean_error(got, want) < 1.1 * own


def mean_error(got, want) -> float:
    """The root of the mean of squares."""
    return float((got.double() - want).square().mean().sqrt())


def test_autocast_computes_and_stores_in_half():
    case = tiny("mistral")
    torch.manual_seed(4)
    ids = torch.randint(3, VOCABULARY, (2, LENGTH))
    cache = case.cache()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = with_cache(case.model, cache, ids, [PROMPT])
    assert cache.caches.layers[0].dtype is torch.bfloat16
    assert close(got.float(), reference(case.model, ids)) < 5e-2


def test_fixed_storage_is_full_before_anything_is_stored():
    case = tiny("llama")
    text = case.policy.replace("storage  contiguous", "storage  fixed")
    cache = load(text, "tiny_fixed").hf.TinyHFCache(case.model.config, capacity=16, backend="torch")
    torch.manual_seed(4)
    ids = torch.randint(3, VOCABULARY, (2, 16))
    want = reference(case.model, ids)
    first = with_cache(case.model, cache, ids[:, :10], [10])
    with pytest.raises(RuntimeError, match="16 slots"):
        with_cache(case.model, cache, ids, [16])
    assert cache.layers[0].get_max_length() == 16
    assert cache.get_seq_length() == 10
    rest = with_cache(case.model, cache, ids[:, 10:], [6])
    assert close(torch.cat([first, rest], 1), want) < 1e-4
