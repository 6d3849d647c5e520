"""The contract's tests with `backend="triton"`, in a process of their own. `make test` runs the faults from the field and a few
more, the slow tests the random histories too; the exhaustive ones take a minute a shape and are not run. All of them:
KVGEN_TEST_BACKENDS=triton TRITON_INTERPRET=1 pytest tests/contract (hours under the interpreter)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_cases.py", ""),
        ("test_rows.py", "filter_to_another"),
        pytest.param("test_random_histories.py", "", marks=pytest.mark.slow),
    ],
)
def test_contract(file, chosen):
    interpreted = {**os.environ, "KVGEN_TEST_BACKENDS": "triton", "TRITON_INTERPRET": "1"}
    command = (sys.executable, "-m", "pytest", "-x", "-q", f"tests/contract/{file}", "-k", chosen)
    done = subprocess.run(
        command, cwd=ROOT, env=interpreted, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
