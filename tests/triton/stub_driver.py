"""A libcuda that accepts everything and launches nothing, and triton's driver on top of it: an H100 without one.

For programs of their own: `activate` comes before the first import of triton.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def build(folder: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and Linux")
    library = "-o", folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1"
    subprocess.run((compiler, "-shared", "-fPIC", *library, HERE / "stub.c"), check=True)


def environment(folder: Path) -> dict[str, str]:
    """Of a process that compiles, and launches against the stub in a folder."""
    quiet = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return {**quiet, "LD_LIBRARY_PATH": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")}


def activate(folder: Path) -> ctypes.CDLL:
    """Make triton take the stub for its GPU; the library counts launches: `stub_launches()`."""
    os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
    libcuda = ctypes.CDLL(str(folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
    libcuda.stub_launches.restype = ctypes.c_int64
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import driver as nvidia

    class Stub(nvidia.CudaDriver):
        def __init__(self) -> None:
            self.utils, self.launcher_cls = nvidia.CudaUtils(), nvidia.CudaLauncher
            self.get_current_device = lambda: 0
            self.get_current_stream = lambda device: 0
            self.set_current_device = lambda device: None
            self.get_device_capability = lambda device: (9, 0)

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

    triton.runtime.driver.set_active(Stub())
    return libcuda
