"""Two cores, many tests: one thread of torch. Helpers explain their failed asserts as tests do."""

import pytest
import torch

torch.set_num_threads(1)
pytest.register_assert_rewrite("tests.contract.harness")
