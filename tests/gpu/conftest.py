"""Tests on a real GPU, with kernels compiled: skipped without one, and where kernels are interpreted."""

import pytest
import torch

triton = pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def gpu():
    if not torch.cuda.is_available() or triton.knobs.runtime.interpret:
        pytest.skip("needs a CUDA or ROCm device, and TRITON_INTERPRET unset")
