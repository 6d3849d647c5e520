"""Decode on models of transformers: kvgen's caches against its dynamic and static ones, in one run, as ratios.

    python -m bench.models                        # a table, bench/results/models.json and models.svg
    python -m bench.models --contexts 1024 4096 --steps 8

Weights are random, of the real SmolLM2-135M's shape and of small models shaped like Mistral and Gemma 3. The caches are
filled with random keys and values, so that a context of 32,768 tokens costs no prefill: a step's time does not depend on
what they hold. The three caches take turns step by step; a figure is the median.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import kvgen
from kvgen.hf_config import policy_text

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
    """One model at one context, by kind of cache: seconds a step, bytes of the cache."""

    model: str
    context: int
    seconds: dict[str, float]
    bytes: dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    figures = []
    print(
        f"{'model':28}{'context':>8}{'tokens/s':>10}{'x dynamic':>11}{'x static':>10}{'bytes':>14}{'of dynamic':>12}"
    )
    for name in options.models:
        model, make = build(MODELS[name], getattr(torch, options.dtype))
        for context in options.contexts:
            figures.append(measure(name, model, make, context, options.steps))
            print(row(figures[-1]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    threads = {"threads": torch.get_num_threads(), "dtype": options.dtype}
    record = {**threads, "figures": [figure._asdict() for figure in figures]}
    (RESULTS / "models.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "models.svg").write_text(plot(figures), encoding="utf-8")


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


def measure(name: str, model, make, context: int, steps: int) -> Figure:
    """All kinds of cache at one context, step by step in turn."""
    caches = {kind: filled(kind, model, make, context, steps) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    token = torch.ones(1, 1, dtype=torch.long)
    for _ in range(steps + 2):
        for kind, cache in caches.items():
            model.set_attn_implementation("kvgen" if kind == "kvgen" else "sdpa")
            start = time.perf_counter()
            with torch.inference_mode():
                model(token, cache=cache)
            times[kind].append(time.perf_counter() - start)
    seconds = {kind: statistics.median(found[2:]) for kind, found in times.items()}
    return Figure(
        name, context, seconds, {kind: cache_bytes(cache) for kind, cache in caches.items()}
    )


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


def row(figure: Figure) -> str:
    seconds, size = figure.seconds, figure.bytes
    return (
        f"{figure.model:28}{figure.context:8,}{1 / seconds['kvgen']:10.1f}"
        f"{seconds['dynamic'] / seconds['kvgen']:10.2f}x{seconds['static'] / seconds['kvgen']:9.2f}x"
        f"{size['kvgen']:14,}{size['kvgen'] / size['dynamic']:11.2f}x"
    )


# -- The plot: how many times as fast as the dynamic cache, over the context


WIDTH, HEIGHT, MARGIN = 640, 300, 56
COLOURS = ("#0072b2", "#d55e00", "#009e73")  # Okabe-Ito


def plot(figures: list[Figure]) -> str:
    """An SVG line a model. Both axes in equal steps of the measured contexts and of the ratio."""
    contexts = sorted({figure.context for figure in figures})
    ratios = {(f.model, f.context): f.seconds["dynamic"] / f.seconds["kvgen"] for f in figures}
    top = max(2.0, *ratios.values())

    def at(context: int, ratio: float) -> tuple[float, float]:
        across = contexts.index(context) / max(1, len(contexts) - 1)
        return MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - ratio / top * (
            HEIGHT - 2 * MARGIN
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 24 * 3}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT + 72}" fill="white"/>',
        f'<text x="{MARGIN}" y="24">decode steps a second, times those on the dynamic cache</text>',
    ]
    for ratio in range(int(top) + 1):
        _, y = at(contexts[0], ratio)
        parts.append(
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{ratio}</text>')
    for context in contexts:
        x, y = at(context, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{context:,}</text>')
    for i, name in enumerate(dict.fromkeys(figure.model for figure in figures)):
        points = " ".join(
            "{:.1f},{:.1f}".format(*at(c, ratios[name, c])) for c in contexts if (name, c) in ratios
        )
        y = HEIGHT + 24 * i
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[i % 3]}" stroke-width="2"/>'
        )
        parts.append(
            f'<rect x="{MARGIN}" y="{y - 9}" width="18" height="4" fill="{COLOURS[i % 3]}"/>'
        )
        parts.append(f'<text x="{MARGIN + 26}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
