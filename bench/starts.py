"""How long a policy's first build takes, and what a start adds once it is built: fresh processes, a fresh cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.contenders import Case, policy
from bench.machine import Result
from kvgen.pipeline import compile_text

# The torch backend comes first: what is timed is what the cpu backend adds.
START = """
import sys, time
sys.path.insert(0, sys.argv[1])
from measured import LocalCache
LocalCache(1, backend="torch")
start = time.perf_counter()
LocalCache(1, backend="cpu")
print(time.perf_counter() - start)
"""


def starts(case: Case, count: int = 3) -> Result:
    """`first build`: up to a cache that can be appended to. `built before`: the same, with the library there."""
    result = Result(str(case), 0, 0, seconds={"first build": [], "built before": []})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in compile_text(policy(case, "ring"), "measured").files.items():
            (folder / path).parent.mkdir(exist_ok=True, parents=True)
            (folder / path).write_text(text, encoding="utf-8")
        for turn in range(count):
            for seconds in result.seconds.values():
                seconds.append(start(folder, folder / f"built-{turn}"))
    return result


def start(package: Path, built: Path) -> float:
    command = [sys.executable, "-c", START, str(package)]
    environment = {**os.environ, "KVGEN_CACHE": str(built)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Python's own cache is part of a second start
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)
