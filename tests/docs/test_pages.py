"""Every code block of every page runs, and shows what it says it shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from tests.docs.blocks import Page, agrees, blocks_of, fresh_imports

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW = "<!-- slow -->"  # at the end of a page that takes more than a few seconds


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def has_code(path: Path) -> bool:
    kinds = {"kv", "json", "python", "console", "sh"}
    return any(block.language in kinds for block in blocks_of(path.read_text(encoding="utf-8")))


def parameter(path: Path):
    marks = [pytest.mark.slow] if SLOW in path.read_text(encoding="utf-8") else []
    return pytest.param(path, id=named(path), marks=marks)


@pytest.mark.filterwarnings("ignore:the cpu backend cannot run here:RuntimeWarning")
@pytest.mark.parametrize("path", [parameter(path) for path in PAGES if has_code(path)])
def test_a_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "none")  # `auto` takes torch: C++ kernels cost minutes and have tests
    run(path, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_what_a_newcomer_follows_runs_on_cpp_kernels_too(name, tmp_path, monkeypatch):
    assert any(module.endswith(".local_cpu") for module in run(ROOT / name, tmp_path, monkeypatch))


def run(path, folder, monkeypatch) -> set[str]:
    """The modules that the page imports of what it compiled."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    (folder / "generated").mkdir()
    monkeypatch.delitem(sys.modules, "generated", raising=False)
    torch.manual_seed(0)
    with fresh_imports():
        Page(named(path), folder).run(path.read_text(encoding="utf-8"))
        return {name for name in sys.modules if name.startswith("generated.")}


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_somewhere(path):
    text = re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (path.parent / target).exists(), target


def test_lines_are_read_as_shown():
    assert agrees("a\n...\nc\n", "a\nb\nb\nc\n")
    assert agrees("one ... three\n", "one two three\n")
    assert not agrees("a\n", "b\n")
    assert not agrees("a\n", "a\nb\n")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("kv", "kvgen 1\npolicy A { dim 8 }"),
        ("kv KV204", "kvgen 1\npolicy A { dim 8 heads query 2 kv 1 }"),
        ("python", "assert False"),
        ("python perhaps", "pass"),
        ("console", "$ kvgen explain nothing"),
        ("console", "$ kvgen --version\nkvgen 9.9.9"),
        ("console fails", "$ kvgen --version"),
        ("json", "{"),
    ],
)
def test_a_page_can_fail(language, text, tmp_path):
    with pytest.raises((AssertionError, ValueError)):
        Page("page", tmp_path).run(f"```{language}\n{text}\n```\n")
