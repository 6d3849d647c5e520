"""Time the cpu backend beside what people use today, in one run on this machine.

    python -m bench.cpu [--minutes N] [--quick] [--only decode,flex,...] [--output FOLDER]

Every figure stands beside the machine's own rates, measured between the contenders: reading is `torch.sum` of 256 MB of
float32, GEMM the faster of float32 and bfloat16. Contenders take turns, and ratios are of one turn each: the median, with
the least and the most. Decode steps rotate over enough caches that none is still in the processor ("cold"). A step is the
append and the attention. "Over bound" is the time over what reading or multiplying takes at least, max(bytes / read rate,
flops / GEMM rate), beside what it should be at most. It ends after about the minutes given, 14 when none are: shapes stand in order of what they tell, and
those that there was no time for are named. JSON and a plot go to bench/results, under the machine's name.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.contenders import STEPS, WORD, Case, Step, our_cache, prompts, queries, tokens
from bench.machine import (
    BF16,
    COLD_BYTES,
    F32,
    Machine,
    Result,
    device_name,
    slug,
    spread,
    timed,
    turns,
)
from bench.plot import lines_svg
from bench.starts import starts

HEADS = ((32, 8, 128), (9, 3, 64), (16, 16, 64), (64, 8, 64))
CLOSE, FAR = 1.25, 1.8  # what the time over what reading or multiplying takes should be at most
QUICK_MINUTES, MINUTES = 3.0, 14.0


@dataclass(frozen=True)
class Table:
    """Shapes measured alike. `share`: of the time, relative to the others'; `columns`: figures beside the ratios."""

    name: str
    title: str
    share: float
    columns: tuple[str, ...]
    cases: tuple[Case, ...]
    measure: Callable[[Case, Machine], Result]
    close: tuple[
        tuple[int, int, int], ...
    ] = ()  # heads that should be close to what the machine can


# -- what is measured


def tables() -> tuple[Table, ...]:
    at = [Case(*heads, dtype, 4096, 4103) for dtype in (BF16, F32) for heads in HEADS]
    batches = [Case(*heads, BF16, 4096, 4103, 4) for heads in HEADS[:2]]
    shorter = [
        Case(*heads, dtype, w, w + 7)
        for w, dtype, heads in itertools.product((1024, 128), (BF16, F32), HEADS)
    ]
    other_dims = [Case(32, 8, 64, BF16, 4096, 4103), Case(16, 16, 128, BF16, 4096, 4103)]
    contexts = [
        Case(32, 8, 128, BF16, w, n)
        for n, w in itertools.product((256, 1024, 4096, 16384, 65536), (1024, None, 4096, 128))
    ]
    tiny = tuple(Case(*heads, BF16, 16, 50) for heads in HEADS[:2])
    prompt = [Case(*heads, dtype, 512, 4096) for heads in HEADS for dtype in (BF16, F32)]
    longer = [Case(32, 8, 128, BF16, 512, 16384), Case(32, 8, 128, BF16, None, 4096)]
    others = ("kvgen", "dynamic", "static", "packed")
    return (
        Table("decode", "decode, cold: times of others over ours", 6, ("read", "gemm", "bound"),
              (*at, *batches, *shorter, *other_dims), lambda case, m: decode(case, m, others, 5), HEADS[:3]),
        Table("alone", "decode, cold, one thread", 2, ("read", "gemm", "bound"), tuple(at), one_thread, HEADS[:3]),
        Table("verify", "verify, cold: times of more columns over one", 1, ("bound",),
              tuple(at[:4]), lambda case, m: verify(case, m, 5)),
        Table("prefill", "prefill", 4, ("gemm", "bound"), (*prompt, *longer), lambda case, m: prefill(case, m, 2), HEADS[:1]),
        Table("latency", "one layer's step, window 16, hot", 0.5, (),
              tiny, latency),
        Table("context", "decode against context, cold", 4, ("read", "bound"), tuple(contexts),
              lambda case, m: decode(case, m, others[:3], 2), HEADS[:3]),
        Table("flex", "compiled flex attention, decode, cold", 2, ("read",), (at[0], at[4]),
              lambda case, m: decode(case, m, ("kvgen", "packed", "flex"), 3)),
        Table("starts", "a policy's first build, and a start after it", 0.5, (), (tiny[0],), lambda case, _: starts(case)),
    )  # fmt: skip


def cold_caches(case: Case) -> int:
    """So many that none is still in the processor when its turn comes again."""
    return max(2, -(-COLD_BYTES // case.bytes))


@torch.no_grad()
def decode(case: Case, machine: Machine, names: tuple[str, ...], count: int) -> Result:
    """A decode step, cold."""
    step = Step.of(case)
    caches = cold_caches(case)
    contenders = {}
    for name in names:
        made = [STEPS[name](step) for _ in range(caches)]
        contenders[name] = lambda states=[state for state, _ in made], run=made[0][1]: mean_step(
            states, run
        )
    return turns(Result(str(case), case.bytes, case.flops()), machine, contenders, count)


def one_thread(case: Case, machine: Machine) -> Result:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return decode(case, machine, ("kvgen",), 3)
    finally:
        torch.set_num_threads(threads)


def mean_step(states: list[Any], step: Callable[[Any], Any]) -> float:
    start = time.perf_counter()
    for state in states:
        step(state)
    return (time.perf_counter() - start) / len(states)


@torch.no_grad()
def verify(case: Case, machine: Machine, count: int) -> Result:
    """Columns of a verify window over one decode step, cold."""
    before = tokens(case, case.context)
    caches = [our_cache(case, before, 8) for _ in range(cold_caches(case))]
    contenders = {}
    more = {f"{columns} columns": columns for columns in (4, 8)}
    for name, columns in {"kvgen": 1, **more}.items():
        (k, v), q = tokens(case, columns), queries(case, columns)
        contenders[name] = lambda k=k, v=v, q=q: mean_step(
            caches, lambda cache: cache.append_window(k, v).attend(q)
        )
    return turns(Result(str(case), case.bytes, case.flops(), more), machine, contenders, count)


@torch.no_grad()
def prefill(case: Case, machine: Machine, count: int) -> Result:
    """A whole prompt of `context` tokens; the flops are those of visible pairs. A mask of all pairs only for short ones."""
    calls = prompts(case)
    if case.context > 4096:
        del calls["masked"]
    contenders = {name: lambda call=call: timed(call) for name, call in calls.items()}
    window = case.window or case.context
    pairs = sum(min(i + 1, window) for i in range(case.context))
    flops = 4 * case.batch * case.query * case.dim * pairs
    return turns(Result(str(case), 0, flops), machine, contenders, count)


@torch.no_grad()
def latency(case: Case, machine: Machine) -> Result:
    """A step of a tiny window, hot: what calling costs."""
    step = Step.of(case)
    contenders = {}
    for name in ("kvgen", "adapter", "dynamic"):
        state, run = STEPS[name](step)
        contenders[name] = lambda state=state, run=run: statistics.median(
            timed(lambda: run(state)) for _ in range(500)
        )
    return turns(Result(str(case), case.bytes, case.flops()), machine, contenders, 3)


# -- within the time


def measured(table: Table, machine: Machine, seconds: float) -> Iterator[Result]:
    """As many of its shapes as there is time for: one more is begun while the last one's time is left."""
    start = time.perf_counter()
    last = 0.0
    for index, case in enumerate(table.cases):
        spent = time.perf_counter() - start
        if index and spent + last > seconds:
            return
        result = table.measure(case, machine)
        result.rule = CLOSE if (case.query, case.kv, case.dim) in table.close else FAR
        yield result
        last = time.perf_counter() - start - spent


def run(
    asked: Iterable[Table],
    machine: Machine,
    minutes: float,
    save: Callable[[dict[str, list[Result]]], None],
) -> None:
    """Each table has its share of what the tables before it have left, and is saved when it is there."""
    end = time.perf_counter() + 60 * minutes
    found: dict[str, list[Result]] = {}
    waiting = list(asked)
    while waiting:
        share = waiting[0].share / sum(table.share for table in waiting)
        table = waiting.pop(0)
        print(f"\n{table.title}")
        found[table.name] = []
        for result in measured(table, machine, share * (end - time.perf_counter())):
            show(result, *table.columns)
            found[table.name].append(result)
        if left_out := names_left_out(table, found[table.name]):
            print(f"no time for: {'; '.join(left_out)}")
        save(found)


def names_left_out(table: Table, results: list[Result]) -> list[str]:
    return [str(case) for case in table.cases[len(results) :]]


def show(result: Result, *columns: str) -> None:
    if "kvgen" not in result.seconds:
        taken = [f"{name} {spread(seconds, 3)} s" for name, seconds in result.seconds.items()]
        print(" | ".join([result.name, *taken]), flush=True)
        return
    ours = statistics.median(result.seconds["kvgen"])
    time_text = f"{ours * 1e3:9.3f} ms" if ours > 1e-3 else f"{ours * 1e6:9.1f} us"
    others = [f"{name} {spread(result.over(name))}x" for name in result.seconds if name != "kvgen"]
    bounds = ", ".join(map(spread, result.bounds().values()))
    figures = {
        "read": lambda: f"of read {spread(result.of_read())}",
        "gemm": lambda: f"of GEMM {spread(result.of_gemm())}",
        "bound": lambda: f"over bound {bounds} ({result.rule})",
    }
    parts = [f"{result.name:38}", time_text, *(figures[name]() for name in columns), *others]
    print(" | ".join(parts), flush=True)


def plot(results: list[Result], device: str) -> str:
    """Milliseconds of a decode step against the context, a line for each cache."""
    series: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        words = result.name.split()
        window, context = words[words.index("W") + 1], int(words[words.index("L") + 1])
        for name, seconds in result.seconds.items():
            line = f"{name}, {'all tokens' if window == 'full' else f'window {window}'}"
            series.setdefault(line, []).append((context, statistics.median(seconds) * 1e3))
    title = f"Decode step, 32/8 heads of 128, bf16; {device}"
    return lines_svg(series, title, "tokens before the step", "milliseconds")


def main() -> None:
    known = {table.name: table for table in tables()}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--quick", action="store_true", help=f"within {QUICK_MINUTES:.0f} minutes")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(known))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(known):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    asked = [known[name] for name in arguments.only]
    device, machine = device_name(), Machine()
    about = {
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "gemm_dtype": WORD[machine.factor.dtype],
        "load": round(os.getloadavg()[0], 1),
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(f"read {machine.read() / 1e9:.1f} GB/s, GEMM {machine.gemm() / 1e9:.0f} GFLOP/s")
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / f"cpu-{slug(device)}"
    minutes = QUICK_MINUTES if arguments.quick else arguments.minutes
    run(asked, machine, minutes, lambda found: save(stem, about, known, found))


def save(
    stem: Path, about: dict[str, Any], known: dict[str, Table], found: dict[str, list[Result]]
) -> None:
    """Tables that were not asked for stay as an earlier run on this machine left them."""
    tables = {name: [one.as_json() for one in results] for name, results in found.items()}
    left_out = {name: names_left_out(known[name], results) for name, results in found.items()}
    file = stem.with_suffix(".json")
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    left_out = {**before.get("left_out", {}), **left_out}
    text = json.dumps({**before, **about, **tables, "left_out": left_out}, indent=1) + "\n"
    file.write_text(text, encoding="utf-8")
    if found.get("context"):
        svg = plot(found["context"], about["device"])
        stem.with_name(f"{stem.name}-context.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
