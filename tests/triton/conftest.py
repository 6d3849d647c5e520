"""Kernels in Triton's interpreter, on the CPU. It must be chosen before triton is imported: see tests/conftest.py."""

import pytest

triton = pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def interpreted(request):
    """Tests that compile or launch do so in processes of their own."""
    if not triton.knobs.runtime.interpret:
        pytest.skip("on a machine with a GPU, set TRITON_INTERPRET=1 for these")
