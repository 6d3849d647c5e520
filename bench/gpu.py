"""Time the emitted Triton kernels on a GPU, each beside what people use today, after checking all of them in float64.

    python -m bench.gpu [--quick] [--only decode,verify,prefill,training] [--output FILE]

Any CUDA or ROCm machine, inside 8 minutes: each group has its share of them, and cases are left out, and named, when that
runs short. Every figure has its bytes a second against a copy measured in the same run, and its ratio to every other that
ran. Decode and verify are measured as replays of a captured graph, so that the host does not count. JSON goes to
bench/results/<device>.json. Exit status 1 if an answer of kvgen's was wrong or did not come.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `python bench/gpu.py` runs as well

from bench.gpu_clock import DEVICE, copy_rate, milliseconds, replayed
from bench.gpu_peers import bound, error, flash_of, flashinfer, flex, judged, optional, sdpa
from kvgen.loading import load_text

BUDGET_SECONDS = 8 * 60 - 30  # what is begun in time may end later
SHARES = {"decode": 0.45, "verify": 0.15, "prefill": 0.25, "training": 0.15}
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2}
HEADS, DIM = 8, 128  # kv heads


@dataclass
class Result:
    """One case: milliseconds by contender, the error of each against float64, and how many bytes have to be read at least.

    `ratios`: how many times faster kvgen was than each that gives the same answer.
    """

    name: str
    bytes: int
    milliseconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    gigabytes_per_second: float = 0.0
    copy_share: float = 0.0
    ratios: dict[str, float] = field(default_factory=dict)

    def finish(self, copy_rate: float) -> None:
        ours = self.milliseconds["kvgen"]
        rate = self.bytes / (ours / 1e3)
        self.gigabytes_per_second = round(rate / 1e9, 1)
        self.copy_share = round(rate / copy_rate, 3)
        same = [name for name in self.milliseconds if name != "kvgen" and name in self.errors]
        self.ratios = {name: round(self.milliseconds[name] / ours, 2) for name in same}


class WrongError(Exception):
    """An answer of kvgen's that float64 does not bear out."""


# -- what is compared


def policy(window: int | None, group: int, dtype: str, slots: int, more: str = "") -> str:
    heads = f"heads query {HEADS * group} kv {HEADS} dim {DIM} dtype {dtype}"
    if "stateless" in more:
        kept = f"window {window}" if window else ""
    else:
        kept = f"window {window} storage ring slack 7" if window else f"storage fixed {slots}"
    return f"kvgen 1\npolicy Bench {{ {heads} {kept} {more} padding right }}\n"


_packages: dict[str, Any] = {}


def cache_for(text: str, batch: int) -> Any:
    if text not in _packages:
        _packages[text] = load_text(text, f"bench_{len(_packages)}")
    return _packages[text].BenchCache(batch, device=DEVICE, backend="triton")


def contend(
    result: Result, contenders: dict[str, Callable[[], Any]], want: torch.Tensor, graph: bool
) -> None:
    """Check, then time. A contender that cannot run, or is wrong, is named with its reason and left out."""
    for name, call in contenders.items():
        try:
            found = call()
            result.errors[name] = error(found, want)
            if result.errors[name] > TOLERANCE[found.dtype]:
                if name == "kvgen":
                    raise WrongError(f"{result.name}: wrong by {result.errors[name]:.2g}")
                print(f"  {name}: wrong by {result.errors[name]:.2g}, not timed")
                continue
            timed = replayed(call) if graph else call
            result.milliseconds[name] = round(milliseconds(timed), 4)
        except Exception as problem:
            if name == "kvgen":
                raise
            print(f"  {name}: {type(problem).__name__}: {str(problem).splitlines()[0][:100]}")


# -- cases


def decode(quick: bool) -> Iterator[tuple[str, Callable[[], Result]]]:
    """Those first that people ask about most, in case time runs short."""
    windows = (128, 4096) if quick else (128, 1024, 4096, None)
    for dtype in ("bf16",) if quick else ("bf16", "f16"):
        for group in (4,) if quick else (4, 8):
            for batch in (1, 8) if quick else (1, 8, 64):
                for window in windows:
                    yield stored_case("decode", window, batch, group, dtype, 1)


def verify(quick: bool) -> Iterator[tuple[str, Callable[[], Result]]]:
    for columns in (4, 8):
        for window in (1024,) if quick else (1024, 4096):
            for batch in (1, 8):
                yield stored_case("verify", window, batch, 4, "bf16", columns)


def stored_case(
    kind: str, window: int | None, batch: int, group: int, dtype: str, columns: int
) -> Any:
    seen = window or 32_768
    name = f"{kind} window {window or 'full 32k'} batch {batch} ratio {group} {dtype} columns {columns}"
    size = batch * HEADS * (seen + columns - 1) * 2 * DIM * 2
    if size > 20 << 30:
        return name, lambda: None
    return name, lambda: run_stored(name, size, window, batch, group, dtype, columns)


def run_stored(
    name: str, size: int, window: int | None, batch: int, group: int, dtype: str, columns: int
) -> Result:
    """A step over full storage: append and attend for kvgen, attention alone for the others."""
    held = window + 7 if window else 32_768
    tokens = held - 64 if not window else held
    cache = cache_for(policy(window, group, dtype, held), batch)
    shape = batch, HEADS, tokens, DIM
    k, v = (torch.randn(shape, device=DEVICE).to(cache.dtype) for _ in range(2))
    cache.append_window(k, v)
    one = torch.randn(batch, HEADS, columns, DIM, device=DEVICE).to(cache.dtype)
    q = torch.randn(batch, HEADS * group, columns, DIM, device=DEVICE).to(cache.dtype)
    append = cache.append_decode if columns == 1 else cache.append_window
    first = max(0, tokens + 1 - (window or tokens + 1))
    keys, values = (torch.cat([x[:, :, first:], one], 2).contiguous() for x in (k, v))
    at = torch.arange(first, tokens + columns, device=DEVICE)
    p = torch.arange(tokens, tokens + columns, device=DEVICE)[:, None]
    mask = (at <= p) & (p - at < (window or 1 << 30))
    want = judged(q, keys, values, mask)

    def step() -> torch.Tensor:
        """The first is judged; each later one stands a step further on, which costs the same."""
        return append(one, one).attend(q)

    result = Result(name, size)
    result.errors["kvgen"] = error(step(), want)
    if result.errors["kvgen"] > TOLERANCE[cache.dtype]:
        raise WrongError(f"{name}: wrong by {result.errors['kvgen']:.2g}")
    result.milliseconds["kvgen"] = round(milliseconds(replayed(step), 20), 4)
    cache.sync()
    others = {"SDPA": sdpa(q, keys, values, None if columns == 1 else mask[None, None])}
    inputs = q, keys, values
    others |= optional(
        "FlexAttention", lambda: bound(flex(window, columns, keys.shape[2]), *inputs)
    )
    others |= optional("flash-attn", lambda: bound(flash_of(window), *inputs))
    if columns == 1:
        others |= optional("FlashInfer", lambda: flashinfer(q, keys, values))
    contend(result, others, want, graph=True)
    return result


def prefill(quick: bool) -> Iterator[tuple[str, Callable[[], Result]]]:
    for window in (512, 4096):
        for length in (2048, 8192) if quick else (2048, 8192, 32_768):
            name = f"prefill window {window} length {length} batch 1 ratio 4 bf16"
            yield (
                name,
                lambda name=name, window=window, length=length: run_prefill(name, window, length),
            )


def run_prefill(name: str, window: int, length: int) -> Result:
    text = policy(window, 4, "bf16", 0)
    cache = cache_for(text, 1)
    k, v = (torch.randn(1, HEADS, length, DIM, device=DEVICE).bfloat16() for _ in range(2))
    q = torch.randn(1, HEADS * 4, length, DIM, device=DEVICE).bfloat16()
    read = cache.append_window(k, v)
    tail = slice(
        length - 64, length
    )  # judged: the last queries, which stand in the middle of everything
    p, at = (
        torch.arange(length - 64, length, device=DEVICE)[:, None],
        torch.arange(length, device=DEVICE),
    )
    want = judged(q[:, :, tail], k, v, (at <= p) & (p - at < window))
    result = Result(name, (q.nbytes * 2 + k.nbytes + v.nbytes))

    def cut(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: call()[:, :, tail]

    contenders = {"kvgen": cut(lambda: read.attend(q))}
    if length <= 8192:
        near = torch.arange(length, device=DEVICE)
        band = (near[None] <= near[:, None]) & (near[:, None] - near[None] < window)
        contenders["SDPA, masked"] = cut(sdpa(q, k, v, band[None, None]))
    contenders |= optional(
        "FlexAttention", lambda: cut(bound(flex(window, length, length), q, k, v))
    )
    contenders |= optional("flash-attn", lambda: cut(bound(flash_of(window), q, k, v)))
    contend(result, contenders, want, graph=False)
    whole = sdpa(q, k, v, None, causal=True)  # sees everything: another answer, so not judged
    result.milliseconds["SDPA, causal, no window"] = round(milliseconds(whole, 10), 4)
    return result


def training(quick: bool) -> Iterator[tuple[str, Callable[[], Result]]]:
    for window in (512, 4096):
        for length in (2048,) if quick else (2048, 8192):
            name = f"training step window {window} length {length} batch 1 ratio 4 bf16"
            yield (
                name,
                lambda name=name, window=window, length=length: run_training(name, window, length),
            )


def run_training(name: str, window: int, length: int) -> Result:
    """Forward and backward. Gradients are judged by SDPA's in float32 over a band mask, for lengths where that fits."""
    cache = cache_for(policy(window, 4, "bf16", 0, "stateless"), 1)
    shapes = (HEADS * 4, HEADS, HEADS)
    leaves = [
        torch.randn(1, h, length, DIM, device=DEVICE).bfloat16().requires_grad_() for h in shapes
    ]
    weight = torch.randn(1, HEADS * 4, length, DIM, device=DEVICE).bfloat16()
    near = torch.arange(length, device=DEVICE)
    band = (near[None] <= near[:, None]) & (near[:, None] - near[None] < window)

    def gradients(attend: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> torch.Tensor:
        found = torch.autograd.grad(attend(*inputs), inputs, weight.to(inputs[0].dtype))
        return torch.cat([x.flatten() for x in found])

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return cache.append_window(k, v).attend(q)

    def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=band[None, None], enable_gqa=True)

    want = gradients(masked, [x.detach().float().requires_grad_() for x in leaves]).double()
    result = Result(name, sum(x.nbytes for x in leaves) * 4)
    contenders = {
        "kvgen": lambda: gradients(ours, leaves),
        "SDPA, masked": lambda: gradients(masked, leaves),
    }
    for other, make in (
        ("FlexAttention", lambda: flex(window, length, length)),
        ("flash-attn", lambda: flash_of(window)),
    ):
        contenders |= optional(other, lambda make=make: bound(gradients, make(), leaves))
    contend(result, contenders, want, graph=False)
    return result


GROUPS = {"decode": decode, "verify": verify, "prefill": prefill, "training": training}


# -- the whole


def main() -> None:
    options = arguments()
    if not torch.cuda.is_available():
        sys.exit(
            "bench/gpu.py times kernels on a CUDA or ROCm device and torch sees none here; `kvgen audit` tells what can be"
            " known of them without one"
        )
    torch.manual_seed(0)
    begin, device = time.monotonic(), torch.cuda.get_device_name()
    rate = copy_rate()
    print(f"{device}: a copy moves {rate / 1e9:.0f} GB/s\n")
    results: list[Result] = []
    left_out: list[str] = []
    failed: list[str] = []
    groups = options.only.split(",")
    deadline, whole = begin, sum(SHARES[group] for group in groups)
    for group in groups:  # what one leaves of its time, the next has
        deadline += BUDGET_SECONDS * SHARES[group] / whole
        for name, run in GROUPS[group](options.quick):
            if time.monotonic() > deadline:
                left_out.append(f"{name}: no time")
                continue
            try:
                result = run()
            except torch.OutOfMemoryError:
                result = None
            except Exception as problem:  # noqa: BLE001 - the other cases are worth their time still
                failed.append(f"{name}: {type(problem).__name__}: {problem}")
                print(f"FAILED {failed[-1]}", flush=True)
                continue
            torch.cuda.empty_cache()
            if result is None:
                left_out.append(f"{name}: too large for this device")
                continue
            result.finish(rate)
            results.append(result)
            print(row(result), flush=True)
    report = {
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "copy_gigabytes_per_second": round(rate / 1e9, 1),
        "seconds": round(time.monotonic() - begin, 1),
        "left_out": left_out,
        "failed": failed,
        "results": [asdict(result) for result in results],
    }
    output = (
        options.output
        or Path(__file__).parent / "results" / f"{re.sub(r'[^a-z0-9]+', '-', device.lower())}.json"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(
        f"\n{len(results)} cases, {len(left_out)} left out, {len(failed)} failed, written to {output}"
    )
    sys.exit(1 if failed else 0)


def row(result: Result) -> str:
    times = "  ".join(f"{name} {ms:.3f}" for name, ms in result.milliseconds.items())
    ratios = ", ".join(f"{ratio}x {name}" for name, ratio in result.ratios.items())
    share = f"{result.gigabytes_per_second:.0f} GB/s, {result.copy_share:.2f} of copy"
    return f"{result.name}: {times} ms; {share}; {ratios or 'no other ran'}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few cases of each group")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by comma")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
