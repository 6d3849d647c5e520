"""Which backend a cache takes, and what it says where one cannot run (contract section 2)."""

import importlib
import os
import subprocess
import sys
import warnings

import pytest
import torch

from tests.contract.harness import compile_files, import_files, policy_text

RING = "window 4 storage ring slack 1"
CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def fresh(*backends: str):
    """A package that nothing has imported yet."""
    stem, files = compile_files("kvgen 1\n" + policy_text("Tested", RING), backends)
    return import_files(files, stem)


def opened(package, backend, device):
    """(name of the backend, what was warned of) where a cache of this package asks for `backend` on `device`."""
    opener = importlib.import_module(f"{package.__name__}._backends")
    arguments = package.TestedCache.KERNELS, package.__name__, backend, 1, torch.float32, device
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        name, _ = opener.open_kernels(*arguments)
    return name, [str(one.message) for one in told]


def test_auto_on_a_gpu_without_triton_is_torch_and_one_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    package = fresh("torch", "triton")
    name, (message,) = opened(package, "auto", CUDA)
    assert name == "torch"
    assert "triton is not installed" in message and "pip install triton" in message
    assert opened(package, "auto", CUDA) == ("torch", []), "said once"


@pytest.mark.parametrize("device", [CUDA, CPU])
def test_auto_takes_what_was_compiled_and_says_nothing(device):
    assert opened(fresh("torch"), "auto", device) == ("torch", [])


def test_auto_on_another_device_is_torch():
    assert opened(fresh("torch", "triton"), "auto", torch.device("xpu")) == ("torch", [])


def test_a_backend_by_name_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ImportError, match="triton is not installed; `pip install triton`"):
        opened(fresh("torch", "triton"), "triton", CUDA)


@pytest.mark.parametrize("backend", ["cpu", "triton"])
def test_a_backend_by_name_that_was_not_compiled(backend):
    with pytest.raises(ImportError, match=f"without {backend} .*--backend torch,{backend}"):
        opened(fresh("torch"), backend, CPU)


ON_A_CPU = """
import sys, torch
sys.path.insert(0, {folder!r})
from {stem} import TestedCache
try:
    TestedCache(1, backend="triton")
except ImportError as error:
    print(error)
"""


def test_triton_on_a_cpu_says_what_it_needs():
    """In a process of its own: here the interpreter would take it."""
    module = fresh("torch", "triton")
    folder = os.path.dirname(os.path.dirname(module.__file__))
    code = ON_A_CPU.format(folder=folder, stem=module.__name__)
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "needs an NVIDIA or AMD GPU" in done.stdout and "TRITON_INTERPRET=1" in done.stdout
