"""The emitted C++: no warnings from any compiler there is, for any CPU, and right on the lanes of CPUs that are not here."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvgen.ir import Stateless
from kvgen.pipeline import check_text, compile_text
from tests.cpu.rig import Rig, policy_text
from tests.cpu.test_answers import RETENTION, live

ROOT = Path(__file__).parents[2]
FULL = os.environ.get("KVGEN_TEST_FULL", "") not in ("", "0")
COMPILERS = [name for name in ("g++", "clang++", "aarch64-linux-gnu-g++") if shutil.which(name)]
TARGETS = {
    "x86-64": ["-march=x86-64"],
    "AVX2": ["-march=x86-64-v3"],
    "AVX-512": ["-march=x86-64-v4"],
    "AVX-512 with dot products": ["-march=x86-64-v4", "-mavx512bf16"],
}
ARM = {"NEON": ["-march=armv8-a"], "NEON with dot products": ["-march=armv8.6-a+bf16"]}
POLICIES = {
    "ring": (policy_text(dtype="bf16", dim="64"), "kv::BFloat16"),
    "sinks, softcap, logits": (
        policy_text(sinks="4", softcap="30.0", sink_logits="", dim="24", heads="query 5 kv 1"),
        "kv::Float16",
    ),
    "chunk, many heads": (
        policy_text(window=None, chunk="64", storage="contiguous", heads="query 12 kv 1", dim="32"),
        "float",
    ),
}
LANES = {
    "4 lanes": "-O1 -march=x86-64",
    "8 lanes": "-O1 -DKV_LANES=8",
    "16 lanes": "-O1 -DKV_LANES=16",
    "16 lanes and dot products": "-O1 -DKV_LANES=16 -DKV_DOT_PRODUCTS",
    "4 lanes and dot products": "-O1 -DKV_LANES=4 -DKV_DOT_PRODUCTS -march=x86-64",
}
CASES = [
    (compiler, target)
    for compiler in COMPILERS
    for target in (ARM if "aarch64" in compiler else TARGETS)
]


@functools.cache
def sources(policy: str, folder: Path) -> Path:
    for name, text in compile_text(POLICIES[policy][0], "pack").files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "pack" / "local_cpu.cpp"


@pytest.mark.parametrize(("compiler", "target"), CASES)
def test_no_warnings(compiler, target, tmp_path):
    policies = list(POLICIES)
    chosen = policies if FULL else [policies[(len(compiler) + len(target)) % len(policies)]]
    for index, policy in enumerate(chosen):
        source = sources(policy, tmp_path / str(index))
        flags = [
            "-std=c++17",
            "-O2",  # some warnings come of what is optimised
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Werror",
            f"-DKV_ELEMENT={POLICIES[policy][1]}",
        ]
        command = [
            compiler,
            *flags,
            *{**TARGETS, **ARM}[target],
            "-c",
            str(source),
            "-o",
            str(tmp_path / "object"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize("lanes", LANES)
def test_lanes_of_other_cpus(lanes, monkeypatch):
    """A policy of its own each time: a library is opened once a process."""
    monkeypatch.setenv("KVGEN_CXXFLAGS", LANES[lanes])
    for heads in ("query 4 kv 1", "query 6 kv 2")[: 2 if FULL else 1]:
        window = str(30 + list(LANES).index(lanes))
        for dtype in (torch.bfloat16, torch.float32):
            live(Rig(policy_text(heads=heads, dim="64", window=window), dtype=dtype))


EMITTED = [
    (path.stem, policy.name)
    for path in sorted((ROOT / "policies").glob("*.kv"))
    for policy in check_text(path.read_text("utf-8"), path.name).program.policies
    if not isinstance(policy.storage, Stateless)
]
OTHERS = [  # numbers that fill no vector, and groups, as no emitted file has them
    (policy_text(**{**RETENTION[kind], "heads": heads, "dim": dim}), "Local")
    for kind, heads, dim in (
        ("sinks", "query 3 kv 1", "key 16 value 24"),
        ("ring", "query 4 kv 2", "key 5 value 7"),
        ("contiguous chunk", "query 12 kv 1", "16"),
    )
]
REDUCED = OTHERS[:1]  # the quickest; an emitted file takes twice as long


@pytest.mark.parametrize(
    ("file", "name"),
    [*EMITTED, *OTHERS] if FULL else REDUCED,
    ids=lambda text: text if len(text) < 20 else "other " + text.splitlines()[2].strip(),
)
def test_sanitizers(file, name, tmp_path):
    """Memory errors and undefined behaviour: every emitted file as every dtype with KVGEN_TEST_FULL, else one policy."""
    runtime = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("g++ has no AddressSanitizer here")
    checks = "address,undefined,float-cast-overflow"
    environment = {
        **os.environ,
        "CXX": "g++",
        "KVGEN_CXXFLAGS": f"-O1 -g -fsanitize={checks} -fno-sanitize-recover=all",
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "KVGEN_CACHE": str(tmp_path),
    }
    dtypes = ["bf16", "f16", "f32"] if FULL else ["bf16"]
    command = [sys.executable, "-m", "tests.cpu.sanitized", "2" if FULL else "0", file, name]
    done = subprocess.run(
        [*command, *dtypes],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stdout)
    assert [line.split()[0] for line in done.stdout.splitlines()] == dtypes
