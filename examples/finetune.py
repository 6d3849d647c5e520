"""Train a small Mistral on text, its attention on a stateless cache of kvgen, beside the same run without kvgen.

    python examples/finetune.py              # both runs, each in a process of its own, and what they cost
    python examples/finetune.py --steps 300

Rows are padded on the right and layers are checkpointed: backward runs them again. A stateless cache stores nothing, so
it gives a layer that is run again the same answer; the rows' lengths reach it through the attention mask.
"""

from __future__ import annotations

import argparse
import inspect
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

POLICY = Path(__file__).with_name("finetune.kv")
ROWS, COLUMNS = 3, 160
TOLERANCE = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--attention", choices=["kvgen", "sdpa"], help="one run, as JSON")
    options = parser.parse_args()
    if options.attention:
        print(json.dumps(train(options.attention, options.steps)))
        return
    runs = {attention: in_a_process(attention, options.steps) for attention in ("sdpa", "kvgen")}
    differences = report(runs, options.steps)
    if max(differences) > TOLERANCE:
        sys.exit(f"the losses differ by {max(differences):.1e}, more than {TOLERANCE}")


def train(attention: str, steps: int) -> dict:
    """Losses, seconds and peak memory of a run."""
    import torch

    model, cache = build(attention)
    # A small rate: two runs whose gradients differ in the last bit drift apart the faster, the larger it is.
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    losses, before, start = [], peak_bytes(), time.perf_counter()
    for batch in batches(steps):
        loss = model(**batch, **cache).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {
        "losses": losses,
        "seconds": time.perf_counter() - start,
        "bytes": peak_bytes() - before,
    }


def build(attention: str):
    """The model, and what its forward is given besides a batch."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        sliding_window=64,
    )
    model = MistralForCausalLM(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    extra = {cache_keyword(model): tiny_mistral_cache(config)} if attention == "kvgen" else {}
    model.set_attn_implementation(attention)
    return model, extra


def tiny_mistral_cache(config):
    import importlib

    import kvgen

    package = kvgen.load(POLICY)
    return importlib.import_module(f"{package.__name__}.hf").TinyMistralHFCache(config)


def cache_keyword(model) -> str:
    """`cache` from transformers 5.24 on, `past_key_values` before."""
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def batches(steps: int):
    """Bytes of a text in rows of different lengths, padded on the right; no loss at padding."""
    import torch

    text = torch.tensor(list(inspect.getsource(argparse).encode()))
    generator = torch.Generator().manual_seed(1)
    columns = torch.arange(COLUMNS)
    for _ in range(steps):
        starts = torch.randint(len(text) - COLUMNS, (ROWS, 1), generator=generator)
        lengths = torch.randint(COLUMNS // 4, COLUMNS + 1, (ROWS, 1), generator=generator)
        real = columns < lengths
        ids = text[starts + columns].where(real, 0)
        yield {
            "input_ids": ids,
            "attention_mask": real.long(),
            "labels": ids.where(real, -100),
        }


def peak_bytes() -> int:
    """The most memory that this process has had: kilobytes on Linux, bytes on a Mac."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def in_a_process(attention: str, steps: int) -> dict:
    command = [sys.executable, __file__, "--attention", attention, "--steps", str(steps)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report(runs: dict, steps: int) -> list[float]:
    """Print both runs; the difference of their losses, step by step."""
    theirs, ours = runs["sdpa"], runs["kvgen"]
    pairs = list(zip(theirs["losses"], ours["losses"], strict=True))
    differences = [abs(a - b) for a, b in pairs]
    print(f"{'step':>6} {'sdpa':>10} {'kvgen':>10} {'difference':>12}")
    for step in sorted({*range(0, steps, max(1, steps // 8)), steps - 1}):
        a, b = pairs[step]
        print(f"{step:6} {a:10.5f} {b:10.5f} {differences[step]:12.1e}")
    for name, run in runs.items():
        print(f"{name:6} {run['seconds']:7.1f} s, {run['bytes'] / 2**20:7.0f} MiB beyond the model")
    print(f"largest difference of the losses over {steps} steps: {max(differences):.1e}")
    return differences


if __name__ == "__main__":
    main()
