"""Two cores, many tests: one thread of torch. Helpers explain their failed asserts as tests do."""

import os

import pytest
import torch

if not torch.cuda.is_available():  # before anything imports triton: its kernels run on the CPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
torch.set_num_threads(1)
pytest.register_assert_rewrite("tests.contract.harness")
