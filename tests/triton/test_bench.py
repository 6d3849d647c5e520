"""bench/gpu.py without a GPU: every group once, tiny, interpreted, untimed. So that it runs where one is at hand."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture
def bench(monkeypatch):
    path = Path(__file__).parents[2] / "bench" / "gpu.py"
    spec = importlib.util.spec_from_file_location("bench_gpu", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "bench_gpu", module)
    spec.loader.exec_module(module)
    for name, value in (("DEVICE", "cpu"), ("HEADS", 1), ("DIM", 16)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "milliseconds", lambda call, repeats=1: call() is None or 1.0)
    monkeypatch.setattr(module, "replayed", lambda call: call)
    monkeypatch.setattr(module, "optional", lambda name, make: {})
    return module


def test_decode_and_verify(bench):
    for window, columns in ((20, 1), (20, 4)):
        result = bench.run_stored("decode", 1, window, 1, 2, "f16", columns)
        assert set(result.milliseconds) == {"kvgen", "SDPA"}


def test_prefill(bench):
    result = bench.run_prefill("prefill", 20, 80)
    assert {"kvgen", "SDPA, masked"} <= set(result.milliseconds)


def test_training(bench):
    result = bench.run_training("training", 20, 40)
    assert set(result.milliseconds) == {"kvgen", "SDPA, masked"}
