"""Tensor parallel: transformers splits a model's heads over processes, each with a cache of its own heads.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py

The split is transformers' own `tp_plan`. A process sees query and key-value heads divided by their number, so the policy
is compiled for that many; the cache is made without a config, whose heads are those of the whole model.
"""

from __future__ import annotations

import importlib
import itertools
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

import kvgen
from kvgen.hf_text import policy_text

FIELDS = {
    "model_type": "mistral",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "sliding_window": 12,
}
COLUMNS = 60


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    folder = shared_folder(rank)
    torch.manual_seed(1)
    ids = torch.randint(3, 90, (2, COLUMNS))
    alone = logits(load(folder, None), cache_class(1)(), ids)
    model = load(folder, "auto")
    cache = cache_class(ranks)()
    together = logits(model, cache, ids)
    difference = float((together - alone).abs().max())
    held = cache.caches.layers[0]
    print(
        f"process {rank} of {ranks}: {held.query_heads} query heads, {held.kv_heads} pairs of keys and values,"
        f" {cache.nbytes:,} bytes; largest logit difference from one process {difference:.1e}",
        flush=True,
    )
    dist.barrier()
    dist.destroy_process_group()
    if difference > 1e-4:
        raise SystemExit("the logits differ")


def shared_folder(rank: int) -> Path:
    """A saved model that every process reads."""
    names = [tempfile.mkdtemp(prefix="tensor_parallel_") if rank == 0 else None]
    if rank == 0:
        save(Path(names[0]))
    dist.broadcast_object_list(names, src=0)
    return Path(names[0])


def save(folder: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    fields = {name: value for name, value in FIELDS.items() if name != "model_type"}
    MistralForCausalLM(MistralConfig(vocab_size=96, **fields)).save_pretrained(folder)


def load(folder: Path, tp_plan: str | None):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, tp_plan=tp_plan).eval()


def cache_class(ranks: int):
    """The HFCache of a process that has one part in `ranks` of the heads."""
    part = {name: FIELDS[name] // ranks for name in ("num_attention_heads", "num_key_value_heads")}
    dim = FIELDS["hidden_size"] // FIELDS["num_attention_heads"]
    text = policy_text({**FIELDS, **part, "head_dim": dim}, "Part")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"part_of_{ranks}.kv"
        path.write_text(text, encoding="utf-8")
        package = kvgen.load(path)
    return importlib.import_module(f"{package.__name__}.hf").PartHFCache


def logits(model, cache, ids: torch.Tensor) -> torch.Tensor:
    """A prompt in two parts, then one token at a time."""
    model.set_attn_implementation("kvgen")
    edges = [0, 20, 30, *range(31, ids.shape[1] + 1)]
    outs = []
    with torch.no_grad():
        for a, b in itertools.pairwise(edges):
            outs.append(model(ids[:, a:b].to(model.device), cache=cache).logits.cpu())
    return torch.cat(outs, 1)


if __name__ == "__main__":
    if "RANK" not in os.environ:
        raise SystemExit(f"run it with: torchrun --nproc-per-node 2 {Path(__file__).name}")
    main()
