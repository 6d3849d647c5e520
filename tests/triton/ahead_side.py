"""A program of its own: packages with kernels compiled ahead, on a stub of an H100. Prints, for each, what came of it as JSON.

python ahead_side.py FOLDER_OF_THE_STUB FOLDER_OF_PACKAGES PACKAGE...
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), sys.argv[2]]

from tests.triton import stub_driver  # noqa: E402

LIBCUDA = stub_driver.activate(Path(sys.argv[1]))

import torch  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

torch.cuda.is_current_stream_capturing = lambda: False  # asks a driver that is not there
compiled: list[str] = []
compile_as_ever = JITFunction._do_compile


def compile_and_tell(self, *arguments, **options):
    compiled.append(self.fn.__name__)
    return compile_as_ever(self, *arguments, **options)


JITFunction._do_compile = compile_and_tell


def used(name: str) -> dict[str, object]:
    """A prefill of two chunks and two decode steps: kernels that the JIT compiled, launches, warnings."""
    compiled.clear()
    before = LIBCUDA.stub_launches()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        package = importlib.import_module(name)
        importlib.import_module(f"{name}._launch").target_of = lambda device: "sm_90"
        cache = package.RingCache(1, backend="triton")
        for columns in (40, 40, 1, 1):
            k = torch.zeros(1, columns, 1, 64, dtype=torch.bfloat16).transpose(1, 2)
            q = torch.zeros(1, columns, 4, 64, dtype=torch.bfloat16).transpose(1, 2)
            append = cache.append_decode if columns == 1 else cache.append_window
            append(k, k).attend(q)
    launches = LIBCUDA.stub_launches() - before
    return {
        "compiled": compiled.copy(),
        "launches": launches,
        "told": [str(w.message) for w in told],
    }


print(json.dumps({name: used(name) for name in sys.argv[3:]}))
