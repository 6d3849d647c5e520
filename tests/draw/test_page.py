"""The HTML page: whole, inert, with the plan, a report and every emitted file."""

from html import escape
from html.parser import HTMLParser

import pytest

from kvgen.draw import draw
from kvgen.emit import emit
from kvgen.plan import decisions, plan
from tests.draw.browser import BROWSER, pixels, screenshot
from tests.draw.conftest import policy_program, program_of
from tests.draw.test_text import TEXT

VOID = {"meta", "br"}


class Tags(HTMLParser):
    """The elements, checked to be closed in order, and the text of each `pre`."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.texts, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "pre":
            self.texts.append("")

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.texts[-1] += data


def read(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    return tags


def test_self_contained():
    program = program_of(TEXT, "golden.kv")
    tags = read(draw(program, "html"))
    assert "script" not in tags.seen and "link" not in tags.seen and "img" not in tags.seen
    assert all(value.startswith("#") for name, value in tags.attributes if name in ("href", "src"))
    names = [value for name, value in tags.attributes if name == "id"]
    assert len(names) == len(set(names))


def test_holds_source_reasons_report_and_files():
    program = program_of(TEXT, "golden.kv")
    page = draw(program, "html", report="proved: 3 < 4 & all")
    texts = read(page).texts
    assert program.formatted in texts and "proved: 3 < 4 & all" in texts
    assert set(emit(plan(program)).values()) <= set(texts)
    for policy in plan(program).policies:
        found = decisions(policy)
        assert {"slots", "bytes"} < {one.topic for one in found} and len(found) > len(
            policy.decisions
        )
        assert all(
            escape(part) in page for one in found for part in (one.topic, one.choice, one.why)
        )


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
def test_on_a_screen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(draw(policy_program("window 5 storage ring"), "html"), "utf-8")
    for dark, paper in ((False, (255, 255, 255)), (True, (18, 22, 28))):
        rows = pixels(screenshot(page, tmp_path / f"{dark}.png", dark))
        assert rows[2][2] == paper
        assert len({pixel for row in rows for pixel in row}) > 50
