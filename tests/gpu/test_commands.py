"""`kvgen build --target` and `kvgen tune` where there is a GPU: kernels that were shipped run, and what is measured is real."""

import importlib
import json

import pytest
import torch
from click.testing import CliRunner

from kvgen.audit import TARGETS
from kvgen.cli import main

POLICY = "kvgen 1\npolicy Tested { heads query 8 kv 2 dim 64 window 300 storage ring slack 3 padding left right }\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shipped.kv").write_text(POLICY)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result


def here() -> str:
    """The target of this device's own machine code."""
    target = importlib.import_module("triton.runtime").driver.active.get_current_target()
    return f"sm_{target.arch}" if target.backend == "cuda" else target.arch


def test_shipped_kernels_run_without_the_jit(home, monkeypatch):
    if here() not in TARGETS:
        pytest.skip(f"kvgen builds for {', '.join(TARGETS)}, this is {here()}")
    run("compile", "shipped.kv")
    run("build", "shipped.kv", "--target", here())
    monkeypatch.syspath_prepend(home / "generated")
    package = importlib.import_module("shipped")
    jit = importlib.import_module("triton.runtime.jit").JITFunction

    def refuse(self, *arguments, **options):
        raise AssertionError(f"{self.fn.__name__} was compiled")

    monkeypatch.setattr(jit, "_do_compile", refuse)
    caches = [package.TestedCache(2, device="cuda", backend=name) for name in ("triton", "torch")]
    for columns in (400, 1, 4, 50, 1):
        k, v, q = (
            torch.randn(2, columns, heads, 64, device="cuda").bfloat16().transpose(1, 2)
            for heads in (2, 2, 8)
        )
        append = "append_decode" if columns == 1 else "append_window"
        found, want = (getattr(cache, append)(k, v).attend(q) for cache in caches)
        assert (found.float() - want.float()).abs().max() <= 4e-2 * max(
            1.0, want.abs().max().item()
        )


def test_what_is_measured_is_compiled(home):
    run("tune", "shipped.kv")
    policies = json.loads((home / "shipped.tune.json").read_text())["policies"]
    (target,) = policies["Tested"]["targets"].values()
    assert target["device"] == torch.cuda.get_device_name()
    for kernel in ("decode", "window"):
        times = target["kernels"][kernel]
        assert 0 < times["microseconds"] <= times["planned_microseconds"] < 1e5
    assert (
        f"measured on {target['device']}" in run("compile", "shipped.kv", "--emit", "plan").stdout
    )
