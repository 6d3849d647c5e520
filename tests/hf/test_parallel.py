"""Two processes: the examples compare their logits with one process and fail if they differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="torch was built without gloo",
)


def run(example, processes):
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run(
        [sys.executable, "-m", *command, str(ROOT / "examples" / example)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("context_parallel.py", "35 of 70 positions"),
        ("tensor_parallel.py", "4 query heads, 2 pairs of keys and values"),
    ],
)
def test_two_processes_give_the_logits_of_one(example, said):
    pytest.importorskip("transformers")
    done = run(example, 2)
    assert done.returncode == 0, done.stderr[-2000:]
    for process in range(2):
        assert f"process {process} of 2: {said}" in done.stdout
