"""Decode on models of transformers: kvgen's caches against its dynamic and static ones, in one run, as ratios.

    python -m bench.models                        # tables, bench/results/models.json, models.svg and models-memory.svg
    python -m bench.models --dtype bfloat16       # the same beside them, as models-bfloat16
    python -m bench.models --contexts 1024 4096 --steps 8

Weights are random, of the real SmolLM2-135M's shape and of small models shaped like Mistral and Gemma 3. The caches are
filled with random keys and values, so that a context of 32,768 tokens costs no prefill: a step's time does not depend on
what they hold. The three caches take turns step by step; a ratio is of two steps that follow each other. So does a step that
has no cache and sees its own token only: what it takes, no cache can save. The limit of a ratio is the other's time over that.

Peak memory is the most that torch has allocated at a time during two steps, beyond the model: the cache, what a step copies
of it, and activations. Masks and workspace are in it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import kvgen
from bench.plot import lines_svg
from kvgen.hf_text import policy_text

RESULTS = Path(__file__).with_name("results")
CONTEXTS = (1024, 4096, 16384, 32768)
KINDS = ("dynamic", "static", "kvgen")
MODELS: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "tiny Mistral, window 1024": {
        "model_type": "mistral",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "sliding_window": 1024,
    },
    "tiny Gemma 3, window 512": {
        "model_type": "gemma3_text",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
    },
}


class Figure(NamedTuple):
    """One model at one context, by kind of cache: seconds of each step, the most bytes at a time, bytes of the cache."""

    model: str
    context: int
    seconds: dict[str, list[float]]
    elsewhere: list[float]  # of the step without a cache
    peak: dict[str, int]
    cache: dict[str, int]

    def tokens_a_second(self, kind: str) -> float:
        return 1 / statistics.median(self.seconds[kind])

    def times_as_fast_as(self, kind: str) -> tuple[float, float, float]:
        """kvgen's steps against those of another cache: the least, the median and the largest ratio."""
        ratios = sorted(
            a / b for a, b in zip(self.seconds[kind], self.seconds["kvgen"], strict=True)
        )
        return ratios[0], statistics.median(ratios), ratios[-1]

    def limit(self, kind: str) -> float:
        """What the ratio would be if reading the cache took no time."""
        others = zip(self.seconds[kind], self.elsewhere, strict=True)
        return statistics.median(other / least for other, least in others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    figures = []
    stem = "models" if options.dtype == "float32" else f"models-{options.dtype}"
    print(heading(), flush=True)
    for name in options.models:
        model, make = build(MODELS[name], getattr(torch, options.dtype))
        for context in options.contexts:
            figures.append(measure(name, model, make, context, options.steps))
            print(row(figures[-1]), flush=True)
    options.results.mkdir(exist_ok=True, parents=True)
    about = {"threads": torch.get_num_threads(), "dtype": options.dtype, "torch": torch.__version__}
    record = {**about, "figures": [as_json(figure) for figure in figures]}
    write = {
        f"{stem}.json": json.dumps(record, indent=1) + "\n",
        f"{stem}.svg": lines_svg(
            series(figures, lambda figure, kind: figure.tokens_a_second(kind)),
            "Decode, batch 1",
            "context, tokens",
            "tokens a second",
        ),
        f"{stem}-memory.svg": lines_svg(
            series(figures, lambda figure, kind: figure.peak[kind] / 2**20),
            "Peak memory of a decode step, beyond the model",
            "context, tokens",
            "MiB",
        ),
    }
    for name, text in write.items():
        (options.results / name).write_text(text, encoding="utf-8")


def build(fields: dict[str, Any], dtype: torch.dtype):
    """The model, and what makes a kvgen cache for it."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = CONFIG_MAPPING[fields["model_type"]](
        vocab_size=4096,
        max_position_embeddings=65536,
        **{name: value for name, value in fields.items() if name != "model_type"},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.kv"
        path.write_text(policy_text(fields, "Measured"), encoding="utf-8")
        package = kvgen.load(path)
    hf = importlib.import_module(f"{package.__name__}.hf")
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    return model, lambda: hf.MeasuredHFCache(model.config)


# -- Time


def measure(name: str, model, make, context: int, steps: int) -> Figure:
    """All kinds of cache at one context: memory one by one, then time, step by step in turn."""
    peaks = {kind: peak_bytes(kind, model, make, context, steps) for kind in KINDS}
    caches = {kind: filled(kind, model, make, context, steps) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "elsewhere")}
    for _ in range(steps + 2):
        for kind, cache in (*caches.items(), ("elsewhere", None)):
            start = time.perf_counter()
            step(kind, model, cache)
            times[kind].append(time.perf_counter() - start)
    seconds = {kind: found[2:] for kind, found in times.items()}
    sizes = {kind: cache_bytes(cache) for kind, cache in caches.items()}
    return Figure(name, context, seconds, seconds.pop("elsewhere"), peaks, sizes)


def step(kind: str, model, cache) -> None:
    """One token; without a cache it sees itself only."""
    model.set_attn_implementation("kvgen" if kind == "kvgen" else "sdpa")
    with torch.inference_mode():
        model(torch.ones(1, 1, dtype=torch.long), cache=cache, use_cache=cache is not None)


# -- Memory


def peak_bytes(kind: str, model, make, context: int, steps: int) -> int:
    """The most that torch has allocated during two steps, beyond what it had before the cache was made."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        cache = filled(kind, model, make, context, steps)
        start = time.time_ns()
        step(kind, model, cache)
        step(kind, model, cache)
    total = most = 0
    for event in memory_events(profiler):
        total += event.nbytes()
        if event.start_ns() >= start:
            most = max(most, total)
    return most


def memory_events(profiler) -> list[Any]:
    """What torch took and gave back, in order."""
    events = profiler.profiler.kineto_results.events()
    return sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())


def filled(kind: str, model, make, context: int, steps: int):
    """A cache that holds `context` columns of random keys and values."""
    from transformers import DynamicCache, StaticCache

    config = model.config
    if kind == "kvgen":
        return filled_kvgen(make(), model.dtype, context)
    cache = (
        DynamicCache(config=config)
        if kind == "dynamic"
        else StaticCache(config=config, max_cache_len=context + steps + 8)
    )
    shape = 1, config.num_key_value_heads, context, config_head_dim(config)
    with torch.inference_mode():
        for layer in range(config.num_hidden_layers):
            cache.update(*torch.randn(2, *shape, dtype=model.dtype), layer)
    return cache


def filled_kvgen(cache, dtype: torch.dtype, context: int):
    """The same, past the adapter: its columns are counted by its binding."""
    binding = cache.binding
    for layer, facts in enumerate(binding.layers):
        shape = 1, facts.kv_heads, context, facts.key_dim
        k, v = torch.randn(2, *shape, dtype=dtype)
        binding.build(k[:, :, :1])
        binding.cache(layer).append_window(k, v)
        binding.columns[layer] = context
    return cache


def config_head_dim(config) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def cache_bytes(cache) -> int:
    if hasattr(cache, "nbytes"):
        return cache.nbytes
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


# -- What is shown


def heading() -> str:
    return (
        f"{'':28}{'':>8}{'':>10}{'times as fast: min median max, limit':^56}{'peak, MiB':^27}\n"
        f"{'model':28}{'context':>8}{'tokens/s':>10}{'as dynamic':>28}{'as static':>28}"
        f"{'kvgen':>9}{'dynamic':>9}{'static':>9}{'cache':>9}"
    )


def row(figure: Figure) -> str:
    ratios = "".join(
        f"{'{:.2f} {:.2f} {:.2f}, {:.2f}'.format(*figure.times_as_fast_as(kind), figure.limit(kind)):>28}"
        for kind in ("dynamic", "static")
    )
    sizes = [*(figure.peak[kind] for kind in ("kvgen", "dynamic", "static")), figure.cache["kvgen"]]
    return (
        f"{figure.model:28}{figure.context:8,}{figure.tokens_a_second('kvgen'):10.1f}{ratios}"
        + "".join(f"{size / 2**20:9.1f}" for size in sizes)
    )


def as_json(figure: Figure) -> dict[str, Any]:
    others = [kind for kind in KINDS if kind != "kvgen"]
    return {
        "model": figure.model,
        "context": figure.context,
        "tokens_a_second": {kind: figure.tokens_a_second(kind) for kind in KINDS},
        "times_as_fast_as": {
            kind: dict(zip(("min", "median", "max"), figure.times_as_fast_as(kind), strict=True))
            for kind in others
        },
        "limit": {kind: figure.limit(kind) for kind in others},
        "peak_bytes": figure.peak,
        "peak_of_kvgen": {kind: figure.peak["kvgen"] / figure.peak[kind] for kind in others},
        "cache_bytes": figure.cache,
        "seconds": figure.seconds,
        "seconds_elsewhere": figure.elsewhere,
    }


def series(
    figures: list[Figure], value: Callable[[Figure, str], float]
) -> dict[str, list[tuple[float, float]]]:
    """A line a model and kind of cache, over the context."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for figure in figures:
        for kind in KINDS:
            name = f"{kind}, {figure.model.partition(',')[0]}"
            lines.setdefault(name, []).append((figure.context, value(figure, kind)))
    return lines


if __name__ == "__main__":
    main()
