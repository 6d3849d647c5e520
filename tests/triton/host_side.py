"""A program of its own: decode steps against a libcuda that launches nothing. Prints what they cost the host, as JSON.

    python host_side.py FOLDER_OF_THE_STUB PACKAGE_FOLDER

The package `hosted` has the policies Ring (several splits) and Short (one split). Times are the least of many short turns,
which steps and plain launches take by turns: what else the machine does meanwhile, it does to all of them.
"""

from __future__ import annotations

import importlib
import json
import sys
import timeit
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), sys.argv[2]]

from tests.triton import stub_driver  # noqa: E402

LIBCUDA = stub_driver.activate(Path(sys.argv[1]))

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def plain(x, N: tl.constexpr):
    i = tl.arange(0, 64)
    tl.store(x + i, tl.load(x + i) + N)


def microseconds(calls: dict) -> dict:
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(100):
        for name, call in calls.items():
            turns = timeit.repeat(call, number=20, repeat=7)[
                1:
            ]  # the first finds the processor's caches cold
            least[name] = min(least[name], *turns)
    return {name: least[name] / 20 * 1e6 for name in least}


def launches(call) -> int:
    before = LIBCUDA.stub_launches()
    call()
    return LIBCUDA.stub_launches() - before


def main() -> None:
    torch.set_num_threads(1)
    hosted = importlib.import_module("hosted")
    importlib.import_module("hosted._launch").target_of = lambda device: "sm_90"
    found, calls = {}, {}
    for name in ("Ring", "Short"):
        cache = getattr(hosted, f"{name}Cache")(1, backend="triton")
        k = torch.zeros(1, 8, 1, 128, dtype=torch.bfloat16)
        q = torch.zeros(1, 32, 1, 128, dtype=torch.bfloat16)

        def step(cache=cache, k=k, q=q):
            return cache.append_decode(k, k).attend(q)

        step()
        found[f"{name} launches"], calls[f"{name} step"] = launches(step), step
    x = torch.zeros(64)
    calls["plain launch"] = lambda: plain[(1,)](x, N=1)
    print(json.dumps(found | microseconds(calls)))


main()
