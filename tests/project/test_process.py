"""What only whole processes show: time, what is imported, and that output depends on the policy alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GEMMA3 = ROOT / "policies/gemma3.kv"


def environment(**settings: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **settings}


def cpu_seconds(*arguments: object) -> float:
    """What a process costs the processor, which other work on the machine changes little. The least of a few."""

    def once() -> float:
        before = os.times()
        subprocess.run(
            [sys.executable, *map(str, arguments)],
            check=True,
            capture_output=True,
            env=environment(),
        )
        after = os.times()
        return after.children_user + after.children_system - before[2] - before[3]

    return min(once() for _ in range(5))


@pytest.fixture(scope="module")
def slowness() -> float:
    """How much slower than a quiet machine this one is now: importing what kvgen needs takes 0.1 s there."""
    needed = cpu_seconds("-c", "import click, jinja2, lark") - cpu_seconds("-c", "pass")
    return max(1.0, needed / 0.1)


def test_help_starts_none_of_the_compiler(slowness):
    over_bare = cpu_seconds("-m", "kvgen", "--help") - cpu_seconds("-c", "pass")
    assert over_bare < 0.150 * slowness


def test_compile_of_one_file_is_quick(tmp_path, slowness):
    command = ("-m", "kvgen", "compile", GEMMA3, "-o", tmp_path)
    assert cpu_seconds(*command) - cpu_seconds("-c", "pass") < 0.600 * slowness


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", str(GEMMA3)],
        ["fmt", "--check", str(GEMMA3)],
        ["compile", str(GEMMA3)],
        ["compile", "--emit", "code", str(GEMMA3)],
        ["explain", "window"],
        ["list", "kernels"],
        ["init"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_neither_torch_nor_triton_is_imported(tmp_path, arguments):
    script = f"""
import sys
sys.argv = ["kvgen", *{arguments!r}]
from kvgen.__main__ import main
try:
    main()
except SystemExit as ended:
    assert ended.code in (0, 1, None), ended.code
heavy = {{"torch", "triton", "transformers", "numpy"}} & sys.modules.keys()
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_help_imports_neither_lark_nor_jinja2():
    script = "import sys, kvgen.cli; assert not {'lark', 'jinja2', 'json'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True, env=environment())


def written(folder: Path, home: Path, **settings: str) -> dict[str, bytes]:
    """What all of policies/ compiles to in a process with other surroundings."""
    home.mkdir()
    subprocess.run(
        [sys.executable, "-m", "kvgen", "compile", ROOT / "policies", "-o", folder],
        check=True,
        capture_output=True,
        cwd=home,
        env=environment(**settings),
    )
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_output_depends_on_the_policy_alone(tmp_path):
    """Not on the hash seed, the folder, the locale, the time zone, or how the folder is written."""
    first = written(
        tmp_path / "one",
        tmp_path / "home",
        PYTHONHASHSEED="1",
        LC_ALL="C",
        TZ="UTC",
        PYTHONUTF8="0",
    )
    second = written(
        tmp_path / "deep/er/two",
        tmp_path / "another home",
        PYTHONHASHSEED="2",
        LC_ALL="C.UTF-8",
        TZ="Asia/Kathmandu",
        PYTHONOPTIMIZE="1",
    )
    assert len(first) > 100
    assert first == second
