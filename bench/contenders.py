"""What people use today, and kvgen: one decode step, and one prompt, of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from bench.machine import BF16, F32
from kvgen.loading import load_text

WORD = {BF16: "bf16", F32: "f32"}


@dataclass(frozen=True)
class Case:
    """A shape. `window` None: everything. `context`: tokens before the step."""

    query: int
    kv: int
    dim: int
    dtype: torch.dtype
    window: int | None
    context: int
    batch: int = 1

    @property
    def seen(self) -> int:
        return self.context if self.window is None else min(self.window, self.context)

    @property
    def bytes(self) -> int:
        return 2 * self.batch * self.kv * self.seen * self.dim * self.dtype.itemsize

    def flops(self, columns: int = 1) -> int:
        return 4 * self.batch * self.query * self.seen * self.dim * columns

    def __str__(self) -> str:
        window = "full" if self.window is None else self.window
        return f"{self.query}/{self.kv} D {self.dim} {WORD[self.dtype]} W {window} L {self.context} B {self.batch}"


def tokens(case: Case, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = case.batch, case.kv, width, case.dim
    return torch.randn(shape).to(case.dtype), torch.randn(shape).to(case.dtype)


def queries(case: Case, width: int = 1) -> torch.Tensor:
    return torch.randn(case.batch, case.query, width, case.dim).to(case.dtype)


@dataclass(frozen=True)
class Step:
    """The tokens before a step, and those of the step."""

    case: Case
    before: tuple[torch.Tensor, torch.Tensor]
    k: torch.Tensor
    v: torch.Tensor
    q: torch.Tensor

    @classmethod
    def of(cls, case: Case) -> Step:
        return cls(case, tokens(case, case.context), *tokens(case, 1), queries(case))


Stepper = tuple[Any, Callable[[Any], Any]]  # a state, and the step on such a state


def policy(case: Case, storage: str) -> str:
    window = "" if case.window is None else f"    window {case.window}\n"
    return (
        f"kvgen 1\npolicy Local {{\n    heads query {case.query} kv {case.kv}\n    dim {case.dim}\n"
        f"    dtype {WORD[case.dtype]}\n{window}    storage {storage}\n    padding none\n    trim guarded\n}}\n"
    )


@cache
def package(text: str) -> Any:
    return load_text(text, "bench_policy")


def our_cache(case: Case, before: tuple[torch.Tensor, torch.Tensor], slack: int = 0) -> Any:
    storage = f"fixed {case.context + 256}" if case.window is None else f"ring slack {slack}"
    ours = package(policy(case, storage)).LocalCache(case.batch, backend="cpu")
    ours.append_window(*before)
    return ours


def step_ours(step: Step) -> Stepper:
    return our_cache(step.case, step.before), lambda cache: cache.append_decode(
        step.k, step.v
    ).attend(step.q)


def step_adapter(step: Step) -> Stepper:
    """Our cache as the attention layer of a model of transformers calls it."""
    from importlib import import_module

    from transformers import MistralConfig
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    case = step.case
    text = policy(case, "ring slack 0") + "model One {\n    layers 1\n    repeat Local\n}\n"
    hf = import_module(f"{package(text).__name__}.hf")
    config = MistralConfig(
        num_hidden_layers=1,
        num_attention_heads=case.query,
        num_key_value_heads=case.kv,
        head_dim=case.dim,
        sliding_window=case.window,
    )
    layer = SimpleNamespace(layer_idx=0, config=config)
    attend = ALL_ATTENTION_FUNCTIONS["kvgen"]
    call = {"scaling": case.dim**-0.5, "sliding_window": case.window}
    ours = hf.OneHFCache(config, backend="cpu")
    attend(layer, queries(case, case.context), *ours.update(*step.before, 0), None, **call)
    return ours, lambda ours: attend(layer, step.q, *ours.update(step.k, step.v, 0), None, **call)


def step_dynamic(step: Step) -> Stepper:
    """transformers' growing cache, with the attention its models call."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    window = step.case.window
    layer = DynamicLayer() if window is None else DynamicSlidingWindowLayer(sliding_window=window)
    layer.update(*step.before)
    layer.update(step.k, step.v)  # it keeps a view of all it was given, until the next update
    return layer, lambda layer: attend_transformers(step, *layer.update(step.k, step.v)[:2])


def step_static(step: Step) -> Stepper:
    """transformers' preallocated cache, with the mask it needs."""
    from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer

    case = step.case
    length = case.context + 256
    layer = (
        StaticLayer(max_cache_len=length)
        if case.window is None
        else StaticSlidingWindowLayer(max_cache_len=length, sliding_window=case.window)
    )
    layer.update(*step.before)
    slots = length if case.window is None else min(length, case.window)
    mask = torch.zeros(case.batch, 1, 1, slots, dtype=torch.bool)
    mask[..., : case.context + 1] = True
    return layer, lambda layer: attend_transformers(step, *layer.update(step.k, step.v)[:2], mask)


def attend_transformers(step: Step, k: Any, v: Any, mask: Any = None) -> Any:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    case = step.case
    module = SimpleNamespace(
        num_key_value_groups=case.query // case.kv, is_causal=True, training=False
    )
    scale = case.dim**-0.5
    return sdpa_attention_forward(module, step.q, k, v, mask, scaling=scale, is_causal=False)


def planes(step: Step) -> tuple[torch.Tensor, torch.Tensor]:
    """A ring of one's own."""
    keys, values = (x[:, :, : step.case.seen].clone() for x in step.before)
    return keys, values


def step_packed(step: Step) -> Stepper:
    """SDPA over a ring of one's own, the query heads of a kv head as rows of one call."""
    case = step.case
    grouped = step.q.view(case.batch, case.kv, case.query // case.kv, case.dim)

    def run(state: Any) -> Any:
        keys, values = state
        keys[:, :, 17], values[:, :, 17] = step.k[:, :, 0], step.v[:, :, 0]
        return F.scaled_dot_product_attention(grouped, keys, values).view_as(step.q)

    return planes(step), run


def step_flex(step: Step) -> Stepper:
    """Compiled flex attention over the same ring."""
    compiled = compiled_flex()

    def run(state: Any) -> Any:
        keys, values = state
        keys[:, :, 17], values[:, :, 17] = step.k[:, :, 0], step.v[:, :, 0]
        return compiled(step.q, keys, values)

    return planes(step), run


def compiled_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    torch.compiler.reset()
    return torch.compile(lambda q, k, v: flex_attention(q, k, v, enable_gqa=True))


STEPS: dict[str, Callable[[Step], Stepper]] = {
    "kvgen": step_ours,
    "adapter": step_adapter,
    "dynamic": step_dynamic,
    "static": step_static,
    "packed": step_packed,
    "flex": step_flex,
}


# -- prompts


def prompts(case: Case) -> dict[str, Callable[[], Any]]:
    """The whole prompt of `context` tokens at once, by each."""
    (k, v), q = tokens(case, case.context), queries(case, case.context)
    length, window = case.context, case.window or case.context
    storage = "ring" if case.window else "contiguous"
    cache = package(policy(case, storage)).LocalCache(case.batch, backend="cpu")
    at = torch.arange(length)

    def ours() -> Any:
        cache.reset()
        return cache.append_window(k, v).attend(q)

    def masked() -> Any:
        seen = (at[:, None] >= at) & (at[:, None] - at < window)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)

    def banded() -> Any:
        out, block = torch.empty_like(q), 256
        for low in range(0, length, block):
            keys, rows = slice(max(0, low - window + 1), low + block), slice(low, low + block)
            seen = (at[rows, None] >= at[keys]) & (at[rows, None] - at[keys] < window)
            part = q[:, :, rows], k[:, :, keys], v[:, :, keys]
            out[:, :, rows] = F.scaled_dot_product_attention(*part, attn_mask=seen, enable_gqa=True)
        return out

    return {"kvgen": ours, "masked": masked, "banded": banded}
