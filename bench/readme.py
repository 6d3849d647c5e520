"""Write the README's table of measured ratios from what bench/results holds.

    python -m bench.readme             # rewrites the block between the two marks
    python -m bench.readme --print

A ratio is another's time over kvgen's, of one run on one machine: the median over the shapes that were measured, with the
least and the most.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- measured: python -m bench.readme -->", "<!-- /measured -->"
NAMES = {
    "dynamic": "transformers' dynamic cache",
    "static": "its static cache",
    "packed": "SDPA, heads packed",
    "banded": "SDPA, in bands",
    "masked": "SDPA, a mask",
    "flex": "flex attention",
}
OTHER_ANSWERS = ("SDPA, causal, no window",)  # timed beside, but not of the same work
Ratios = dict[str, dict[str, list[float]]]  # {what was measured: {contender: a ratio a shape}}


def cpu(data: Any) -> Ratios:
    found: Ratios = {}
    for kind, title in (("decode", "decode"), ("prefill", "prefill")):
        for case in data.get(kind, ()):
            words = case["name"].split()
            window, dtype = words[words.index("W") + 1], words[words.index("W") - 1]
            add(found, f"{title}, window {window}, {dtype}", case["seconds"])
    return found


def models(data: Any) -> Ratios:
    """Of each model the longest context."""
    found: Ratios = {}
    longest = {figure["model"]: figure for figure in sorted(data["figures"], key=_context)}
    for figure in longest.values():
        dtype = f" {data['dtype']}" if "dtype" in data else ""
        what = f"{figure['model']}{dtype}, a step after {figure['context']:,} tokens"
        add(found, what, figure["seconds"])
    return found


def _context(figure: Any) -> int:
    return figure["context"]


def gpu(data: Any) -> Ratios:
    found: Ratios = {}
    for case in data["results"]:
        kind = re.sub(r" (length|batch|ratio|columns) \S+| (f16|bf16)(?= |$)", "", case["name"])
        taken = {name: [ms] for name, ms in case["milliseconds"].items()}
        add(found, kind, taken)
    return found


def add(found: Ratios, what: str, seconds: dict[str, list[float]]) -> None:
    for name, taken in seconds.items():
        if name == "kvgen" or name in OTHER_ANSWERS:
            continue
        turns = zip(taken, seconds["kvgen"], strict=True)
        row = found.setdefault(what, {}).setdefault(name, [])
        row.append(statistics.median(other / ours for other, ours in turns))


def sources(folder: Path) -> Iterable[tuple[str, Path, Callable[[Any], Ratios]]]:
    """(the command, what it wrote, its reader), of those that were run."""
    known = {
        "cpu": ("make bench", cpu),
        "models": (".venv/bin/python -m bench.models", models),
    }
    for path in sorted(folder.glob("*.json")):
        command, reader = known.get(path.stem.split("-")[0], (".venv/bin/python bench/gpu.py", gpu))
        yield command, path, reader


def table(ratios: Ratios) -> str:
    measured = dict.fromkeys(name for row in ratios.values() for name in row)
    columns = sorted(measured, key=lambda name: list(NAMES).index(name) if name in NAMES else 99)
    lines = [
        f"| {' | '.join(['', *(NAMES.get(name, name) for name in columns)])} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for what, row in ratios.items():
        cells = (shown(row[name]) if name in row else "" for name in columns)
        lines.append(f"| {' | '.join([what, *cells])} |")
    return "\n".join(lines)


def shown(ratios: list[float]) -> str:
    middle = f"{statistics.median(ratios):.1f}x"
    if len(ratios) == 1:
        return middle
    return f"{middle} ({min(ratios):.1f} to {max(ratios):.1f})"


def block(folder: Path = RESULTS) -> str:
    """What stands between the marks."""
    parts = []
    for command, path, reader in sources(folder):
        data = json.loads(path.read_text(encoding="utf-8"))
        if ratios := reader(data):
            where = f" on one {data['device']}" if "device" in data else ""
            head = f"Their time over kvgen's{where}, the median over shapes and the range; `{command}` measures yours:"
            parts.append(f"{head}\n\n{table(ratios)}")
    return "\n\n".join(parts or ["`make bench` measures the ratios of your machine."])


def rewritten(readme: str, text: str) -> str:
    """The README with that block."""
    begin, end = readme.index(BEGIN) + len(BEGIN), readme.index(END)
    return f"{readme[:begin]}\n\n{text}\n\n{readme[end:]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--print", dest="only_print", action="store_true", help="change nothing")
    if parser.parse_args().only_print:
        print(block())
        return
    path = ROOT / "README.md"
    path.write_text(rewritten(path.read_text(encoding="utf-8"), block()), encoding="utf-8")


if __name__ == "__main__":
    main()
