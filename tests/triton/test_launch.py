"""What a decode step costs the host, measured in a process of its own against a stub of libcuda."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvgen.pipeline import compile_text
from tests.triton import stub_driver

POLICIES = """kvgen 1
policy Ring { heads query 32 kv 8 dim 128 window 4096 storage ring slack 7 padding left right }
policy Short { heads query 32 kv 8 dim 128 window 128 storage ring slack 7 padding left right }
"""


@pytest.fixture(scope="module")
def measure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host")
    stub_driver.build(folder)
    for path, text in compile_text(POLICIES, "hosted").files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    program = (sys.executable, Path(__file__).with_name("host_side.py"), folder, folder)

    def run() -> dict:
        done = subprocess.run(
            program,
            env=stub_driver.environment(folder),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def measured(measure):
    return measure()


def test_launches_of_a_step(measured):
    """Append, decode, merge; without a merge where one split suffices."""
    assert measured["Ring launches"] == 3
    assert measured["Short launches"] == 2


@pytest.mark.parametrize("name", ["Ring", "Short"])
def test_a_step_costs_one_and_a_half_plain_launches(name, measured, measure):
    """Checks, book-keeping, two or three launches and the answer's memory: 1.36 with two, 1.45 with three. A machine that is
    busy with other things may have three tries."""
    found = measured
    for _ in range(2):
        if found[f"{name} step"] <= 1.5 * found["plain launch"]:
            break
        found = measure()
    assert found[f"{name} step"] <= 1.5 * found["plain launch"], found
