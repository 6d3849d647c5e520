"""The site builds, without a warning and without a network, and holds what it takes from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvgen.clauses import ALL
from kvgen.cli import main
from kvgen.diagnostics import CODES
from tests.project.test_process import environment

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", built / "state", DOCS, built / "html"],
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return built / "html"


class Text(HTMLParser):
    """The words of a page, and the addresses that its reader's browser would load from."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.loaded = "", []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data

    def handle_starttag(self, tag, attrs) -> None:
        values = dict(attrs)
        if tag in ("script", "img"):
            self.loaded.append(values.get("src") or "")
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(values["href"])


def page(site: Path, name: str) -> Text:
    return Text((site / name).read_text(encoding="utf-8"))


def test_each_page_is_there_and_loads_nothing_from_elsewhere(site):
    for name in PAGES:
        assert not [address for address in page(site, name).loaded if "//" in address], name


def test_all_clauses_and_codes_have_their_section(site):
    clauses, codes = (page(site, f"reference/{name}.html").words for name in ("clauses", "codes"))
    for kind in ALL:
        assert kind.meaning.replace("`", "").split(";")[0] in clauses, kind.keyword
    for code, title in CODES.items():
        assert f"{code}: {title.replace('`', '')}" in codes, code


def test_all_commands_and_options_are_there(site):
    words = page(site, "reference/command-line.html").words
    for name, command in main.commands.items():
        assert f"kvgen {name}" in words
        for option in command.params:
            assert max(option.opts, key=len) in words or option.param_type_name == "argument"


def test_emitted_methods_are_there(site):
    words = page(site, "reference/emitted.html").words
    for method in (
        "append_decode",
        "append_window",
        "is_trimmable",
        "attend",
        "merge_rows",
        "sync",
    ):
        assert method in words, method


def test_comments_of_examples_are_left_alone(site):
    assert "# café" in page(site, "reference/codes.html").words
    assert "## café" not in page(site, "reference/codes.html").words
