"""The SVG: well-formed, the same bytes everywhere, its rectangles where the cells are, readable in a browser."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from kvgen.draw import draw
from kvgen.draw.kinds import Kind
from kvgen.draw.panels import CELL
from kvgen.draw.picture import pictures
from kvgen.draw.style import fill_of
from tests.draw.browser import BROWSER, pixels, screenshot
from tests.draw.conftest import ROOT, policy_program, program_of

SPACE = "{http://www.w3.org/2000/svg}"


def parsed(program) -> ElementTree.Element:
    return ElementTree.fromstring(draw(program, "svg"))


def test_well_formed_and_inert(program):
    root = parsed(program)
    assert not [e for e in root.iter() if e.tag in (f"{SPACE}script", f"{SPACE}image")]
    assert not [a for e in root.iter() for a in e.attrib if "href" in a or a.startswith("on")]
    assert root.find(f"{SPACE}title").text == f"{program.stem}.kv"
    names = {e.get("id") for e in root.iter() if e.get("id")}
    used = set(re.findall(r"url\(#([^)]+)\)", draw(program, "svg")))
    assert used <= names


def test_gallery_is_up_to_date(program):
    """If this fails: kvgen draw policies -o docs/gallery."""
    drawn = (ROOT / "docs" / "gallery" / f"{program.stem}.svg").read_text("utf-8")
    assert drawn == draw(program, "svg")


def test_same_bytes_in_another_process(tmp_path):
    file = ROOT / "policies" / "gemma3.kv"
    command = [sys.executable, "-m", "kvgen", "draw", str(file), "--format", "html"]
    found = set()
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PATH": ""}
        run = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, check=True
        )
        found.add(run.stdout)
    found.add(draw(program_of(file.read_text(), "gemma3.kv"), "html").encode())
    assert len(found) == 1


@pytest.mark.parametrize(
    "clauses", ["window 5 sinks 2 storage ring slack 2", "window 4 chunk 9", "window full"]
)
def test_rectangles_are_the_cells(clauses):
    """Read the first panel back from the file."""
    program = policy_program(clauses)
    (picture,) = pictures(program, 32, 12)
    left, top, side = _frame(parsed(program), 32 * CELL)
    rows = [[Kind.FUTURE] * 32 for _ in range(32)]
    named = {fill_of(kind): kind for kind in Kind if kind not in (Kind.FUTURE, Kind.WAITING)}
    for rect in parsed(program).iter(f"{SPACE}rect"):
        x, y, width, height = (
            float(rect.get(name, "nan").rstrip("%")) for name in ("x", "y", "width", "height")
        )
        if (
            left <= x < left + side
            and top <= y < top + side
            and height == CELL
            and rect.get("fill") in named
        ):
            for key in range(int((x - left) / CELL), int((x + width - left) / CELL)):
                rows[int((y - top) / CELL)][key] = named[rect.get("fill")]
    assert tuple(map(tuple, rows)) == picture.sight


def _frame(root, side: float) -> tuple[float, float, float]:
    for rect in root.iter(f"{SPACE}rect"):
        if (
            rect.get("fill") == "none"
            and float(rect.get("width")) == float(rect.get("height")) == side
        ):
            return float(rect.get("x")), float(rect.get("y")), side
    raise AssertionError("the panel has no frame")


def test_one_policy_of_several():
    program = program_of((ROOT / "policies" / "gemma3.kv").read_text(), "gemma3.kv")
    text = draw(program, "svg", only="global")
    assert "policy Global" in text and "policy Local" not in text


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
def test_light_and_dark_on_a_screen(tmp_path):
    """Paper, window and sink where they are expected, in the colours of either scheme."""
    program = policy_program("window 5 sinks 2 storage ring slack 2")
    picture = tmp_path / "picture.svg"
    picture.write_text(draw(program, "svg"))
    left, top, _ = _frame(parsed(program), 32 * CELL)
    expected = {
        False: {"paper": (255, 255, 255), "window": (0, 114, 178), "sink": (230, 159, 0)},
        True: {"paper": (18, 22, 28), "window": (43, 143, 202), "sink": (230, 159, 0)},
    }
    for dark, colours in expected.items():
        rows = pixels(screenshot(picture, tmp_path / f"{dark}.png", dark))

        def at(query: int, key: int, rows=rows) -> tuple[int, int, int]:
            return rows[int(top + query * CELL + 2)][int(left + key * CELL + 4)]

        assert at(4, 20) == colours["paper"]
        assert at(9, 8) == colours["window"]
        assert at(9, 1) == colours["sink"]
        assert at(9, 3) not in colours.values()  # hatched
