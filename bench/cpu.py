"""Time the cpu backend beside what people use today, in one run on this machine.

    python -m bench.cpu [--quick] [--only decode,prefill,verify,latency,context] [--flex] [--output FOLDER]

Every figure stands beside the machine's own rates, measured between the contenders: reading is `torch.sum` of 256 MB of
float32, GEMM the faster of float32 and bfloat16. Contenders take turns, and ratios are of one turn each: the median, with
the least and the most. Decode steps rotate over enough caches that none is still in the processor ("cold"). A step is the
append and the attention. JSON and a plot go to bench/results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from bench.plot import lines_svg
from kvgen.loading import load_text

BF16, F32 = torch.bfloat16, torch.float32
HEADS = ((32, 8, 128), (9, 3, 64), (16, 16, 64), (64, 8, 64))
COLD_BYTES = 256 << 20
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


@dataclass
class Result:
    """Seconds of every turn by contender, and the rates of that turn."""

    name: str
    bytes: int
    flops: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    read: list[float] = field(default_factory=list)
    gemm: list[float] = field(default_factory=list)

    def over(self, other: str, ours: str = "kvgen") -> list[float]:
        return [a / b for a, b in zip(self.seconds[other], self.seconds[ours], strict=True)]

    def of_read(self) -> list[float]:
        return [self.bytes / t / r for t, r in zip(self.seconds["kvgen"], self.read, strict=True)]

    def of_gemm(self) -> list[float]:
        return [self.flops / t / g for t, g in zip(self.seconds["kvgen"], self.gemm, strict=True)]

    def over_bound(self) -> list[float]:
        """Time over what reading and multiplying take at least."""
        turns = zip(self.seconds["kvgen"], self.read, self.gemm, strict=True)
        return [t / max(self.bytes / r, self.flops / g) for t, r, g in turns]


# -- the machine


class Machine:
    """Its rates, measured whenever asked."""

    def __init__(self) -> None:
        self.memory = torch.randn(COLD_BYTES // 4)
        self.factors = [torch.randn(1024, 1024).to(dtype) for dtype in (F32, BF16)]
        seconds = [best_of(2, lambda x=x: x @ x) for x in self.factors]
        self.factor = self.factors[seconds.index(min(seconds))]

    def read(self) -> float:
        return COLD_BYTES / timed(self.memory.sum)

    def gemm(self) -> float:
        return 2 * 1024**3 / best_of(3, lambda: self.factor @ self.factor)


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best_of(repeats: int, call: Callable[[], Any]) -> float:
    return min(timed(call) for _ in range(repeats))


def turns(
    result: Result, machine: Machine, contenders: dict[str, Callable[[], float]], count: int
) -> Result:
    """Each contender gives its seconds; the first turn warms up and is forgotten."""
    for turn in range(count + 1):
        read, gemm = machine.read(), machine.gemm()
        taken = {name: call() for name, call in contenders.items()}
        if turn:
            result.read.append(read)
            result.gemm.append(gemm)
            for name, seconds in taken.items():
                result.seconds.setdefault(name, []).append(seconds)
    return result


# -- contenders


def policy(case: Case, storage: str) -> str:
    window = "" if case.window is None else f"    window {case.window}\n"
    return (
        f"kvgen 1\npolicy Local {{\n    heads query {case.query} kv {case.kv}\n    dim {case.dim}\n"
        f"    dtype {WORD[case.dtype]}\n{window}    storage {storage}\n    padding none\n    trim guarded\n}}\n"
    )


def our_cache(case: Case, slack: int = 0) -> Any:
    storage = f"fixed {case.context + 4096}" if case.window is None else f"ring slack {slack}"
    cache = load_text(policy(case, storage), "bench_policy").LocalCache(case.batch, backend="cpu")
    cache.append_window(*tokens(case, case.context))
    return cache


def tokens(case: Case, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = case.batch, case.kv, width, case.dim
    return torch.randn(shape).to(case.dtype), torch.randn(shape).to(case.dtype)


def queries(case: Case, width: int = 1) -> torch.Tensor:
    return torch.randn(case.batch, case.query, width, case.dim).to(case.dtype)


def step_ours(case: Case, k: Any, v: Any, q: Any) -> tuple[Any, Callable[[Any], Any]]:
    return our_cache(case), lambda cache: cache.append_decode(k, v).attend(q)


def step_dynamic(case: Case, k: Any, v: Any, q: Any) -> tuple[Any, Callable[[Any], Any]]:
    """transformers' growing cache, with the attention its models call."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    layer = (
        DynamicLayer()
        if case.window is None
        else DynamicSlidingWindowLayer(sliding_window=case.window)
    )
    layer.update(*tokens(case, case.context))
    return layer, lambda layer: attend_transformers(case, q, *layer.update(k, v)[:2])


def step_static(case: Case, k: Any, v: Any, q: Any) -> tuple[Any, Callable[[Any], Any]]:
    """transformers' preallocated sliding cache, with the mask it needs."""
    from transformers.cache_utils import StaticSlidingWindowLayer

    layer = StaticSlidingWindowLayer(max_cache_len=2 * case.context, sliding_window=case.window)
    layer.update(*tokens(case, case.context))
    mask = torch.ones(case.batch, 1, 1, case.window, dtype=torch.bool)
    return layer, lambda layer: attend_transformers(case, q, *layer.update(k, v)[:2], mask)


def attend_transformers(case: Case, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    module = SimpleNamespace(
        num_key_value_groups=case.query // case.kv, is_causal=True, training=False
    )
    return sdpa_attention_forward(module, q, k, v, mask, scaling=case.dim**-0.5, is_causal=False)


def step_packed(case: Case, k: Any, v: Any, q: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A ring of one's own, and the query heads of a kv head as rows of one call."""
    grouped = q.view(case.batch, case.kv, case.query // case.kv, case.dim)

    def step(planes: Any) -> Any:
        keys, values = planes
        keys[:, :, 17], values[:, :, 17] = k[:, :, 0], v[:, :, 0]
        return F.scaled_dot_product_attention(grouped, keys, values).view_as(q)

    return tokens(case, case.seen), step


def step_flex(case: Case, k: Any, v: Any, q: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Compiled flex attention over the same ring."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(lambda q, k, v: flex_attention(q, k, v, enable_gqa=True))

    def step(planes: Any) -> Any:
        keys, values = planes
        keys[:, :, 17], values[:, :, 17] = k[:, :, 0], v[:, :, 0]
        return compiled(q, keys, values)

    return tokens(case, case.seen), step


STEPS = {
    "kvgen": step_ours,
    "dynamic": step_dynamic,
    "static": step_static,
    "packed": step_packed,
    "flex": step_flex,
}


# -- tables


@torch.no_grad()
def decode(case: Case, machine: Machine, names: tuple[str, ...], count: int) -> Result:
    """A decode step, cold."""
    k, v = tokens(case, 1)
    q = queries(case)
    caches = max(2, min(64, COLD_BYTES // case.bytes))
    contenders = {}
    for name in names:
        made = [STEPS[name](case, k, v, q) for _ in range(caches)]
        step = made[0][1]
        contenders[name] = lambda states=[state for state, _ in made], step=step: mean_step(
            states, step
        )
    return turns(Result(str(case), case.bytes, case.flops()), machine, contenders, count)


def mean_step(states: list[Any], step: Callable[[Any], Any]) -> float:
    start = time.perf_counter()
    for state in states:
        step(state)
    return (time.perf_counter() - start) / len(states)


@torch.no_grad()
def verify(case: Case, machine: Machine, count: int) -> Result:
    """Columns of a verify window over one decode step, cold."""
    caches = [our_cache(case, slack=8) for _ in range(max(2, min(64, COLD_BYTES // case.bytes)))]
    contenders = {}
    for columns in (1, 4, 8):
        k, v = tokens(case, columns)
        q = queries(case, columns)
        name = "kvgen" if columns == 1 else f"{columns} columns"
        contenders[name] = lambda k=k, v=v, q=q: mean_step(
            caches, lambda cache: cache.append_window(k, v).attend(q)
        )
    return turns(Result(str(case), case.bytes, case.flops()), machine, contenders, count)


@torch.no_grad()
def prefill(case: Case, machine: Machine, names: tuple[str, ...], count: int) -> Result:
    """A whole prompt of `context` tokens; the flops are those of visible pairs."""
    k, v = tokens(case, case.context)
    q = queries(case, case.context)
    length, window = case.context, case.window or case.context
    cache = load_text(policy(case, "ring"), "bench_policy").LocalCache(case.batch, backend="cpu")
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

    calls = {"kvgen": ours, "masked": masked, "banded": banded}
    contenders = {name: lambda call=calls[name]: timed(call) for name in names}
    pairs = sum(min(i + 1, window) for i in range(length))
    flops = 4 * case.batch * case.query * case.dim * pairs
    return turns(Result(str(case), 0, flops), machine, contenders, count)


@torch.no_grad()
def latency(case: Case, machine: Machine, names: tuple[str, ...], count: int) -> Result:
    """A step of a tiny window, hot: what calling costs."""
    k, v = tokens(case, 1)
    q = queries(case)
    contenders = {}
    for name in names:
        state, step = STEPS[name](case, k, v, q)
        contenders[name] = lambda state=state, step=step: statistics.median(
            timed(lambda: step(state)) for _ in range(500)
        )
    return turns(Result(str(case), case.bytes, case.flops()), machine, contenders, count)


def spread(values: list[float], digits: int = 2) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def show(result: Result, *columns: str) -> None:
    ours = statistics.median(result.seconds["kvgen"])
    time_text = f"{ours * 1e3:9.3f} ms" if ours > 1e-3 else f"{ours * 1e6:9.1f} us"
    others = [f"{name} {spread(result.over(name))}x" for name in result.seconds if name != "kvgen"]
    figures = {
        "read": lambda: f"of read {spread(result.of_read())}",
        "gemm": lambda: f"of GEMM {spread(result.of_gemm())}",
        "bound": lambda: f"over bound {spread(result.over_bound())}",
    }
    print(
        " | ".join(
            [f"{result.name:38}", time_text, *(figures[name]() for name in columns), *others]
        ),
        flush=True,
    )


# -- what is measured


def decode_cases(quick: bool) -> list[Case]:
    shapes = HEADS[:2] if quick else HEADS
    windows = (1024, 4096) if quick else (128, 1024, 4096)
    cases = [
        Case(*heads, dtype, w, w + 7) for heads in shapes for dtype in (BF16, F32) for w in windows
    ]
    return cases + ([] if quick else [Case(*heads, BF16, 4096, 4103, 4) for heads in HEADS[:2]])


def run(arguments: argparse.Namespace) -> dict[str, list[Result]]:
    quick, count = arguments.quick, 3 if arguments.quick else 7
    machine = Machine()
    print(
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    )
    print(
        f"read {machine.read() / 1e9:.1f} GB/s, GEMM {machine.gemm() / 1e9:.0f} GFLOP/s ({WORD[machine.factor.dtype]})"
    )
    steps = ("kvgen", "dynamic", "static", "packed", *(["flex"] if arguments.flex else []))
    found: dict[str, list[Result]] = {}

    def table(name: str, title: str, columns: tuple[str, ...], results: Any) -> None:
        if name in arguments.only:
            print(f"\n{title}")
            found[name] = []
            for result in results:
                show(result, *columns)
                found[name].append(result)

    table("decode", "decode, cold: times of others over ours", ("read", "gemm", "bound"),
          (decode(case, machine, steps, count) for case in decode_cases(quick)))  # fmt: skip
    table("verify", "verify, cold: times of more columns over one", ("bound",),
          (verify(Case(*heads, BF16, 4096, 4103), machine, count) for heads in HEADS[: 1 if quick else 3]))  # fmt: skip
    prompts = [
        (heads, dtype, 4096) for heads in HEADS[: 1 if quick else 4] for dtype in (BF16, F32)
    ]
    table("prefill", "prefill, window 512", ("gemm",),
          (prefill(Case(*heads, dtype, 512, length), machine, ("kvgen", "banded") if quick else ("kvgen", "masked", "banded"), 2)
           for heads, dtype, length in prompts))  # fmt: skip
    table("latency", "one layer's step, window 16, hot", (),
          (latency(Case(*heads, BF16, 16, 50), machine, ("kvgen", "dynamic"), 3) for heads in HEADS[:2]))  # fmt: skip
    contexts = (256, 1024, 4096) if quick else (256, 1024, 4096, 16384, 65536)
    cases = [Case(32, 8, 128, BF16, w, n) for w in (128, 1024, 4096, None) for n in contexts]
    table("context", "decode against context, cold", ("read",),
          (decode(case, machine, ("kvgen", "dynamic"), 2) for case in cases))  # fmt: skip
    return found


def plot(results: list[Result]) -> str:
    """Milliseconds of a decode step against the context, a line for each cache."""
    series: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        words = result.name.split()
        window, context = words[words.index("W") + 1], int(words[words.index("L") + 1])
        for name, seconds in result.seconds.items():
            line = f"{name}, {'all tokens' if window == 'full' else f'window {window}'}"
            series.setdefault(line, []).append((context, statistics.median(seconds) * 1e3))
    return lines_svg(
        series, "Decode step, 32/8 heads of 128, bf16", "tokens before the step", "milliseconds"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer shapes and turns")
    parser.add_argument(
        "--flex", action="store_true", help="compiled flex attention too; it compiles for minutes"
    )
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=["decode", "verify", "prefill", "latency", "context"],
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    found = run(arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    data = {name: [asdict(result) for result in results] for name, results in found.items()}
    (arguments.output / "cpu.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if found.get("context"):
        (arguments.output / "cpu-context.svg").write_text(plot(found["context"]), encoding="utf-8")


if __name__ == "__main__":
    main()
