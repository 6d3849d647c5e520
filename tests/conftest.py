"""Two cores, many tests: one thread of torch, and slow tests only where they are asked for. Helpers explain their failed
asserts as tests do."""

import os

import pytest
import torch

if not torch.cuda.is_available():  # before anything imports triton: its kernels run on the CPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
torch.set_num_threads(1)
pytest.register_assert_rewrite("tests.contract.harness")


def pytest_collection_modifyitems(config, items):
    """Slow tests are left out, and counted as left out, unless KVGEN_TEST_SLOW=1 or `-m` speaks of them."""
    if os.environ.get("KVGEN_TEST_SLOW", "") not in ("", "0") or "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
