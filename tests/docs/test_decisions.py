"""Each decision has one number, says it, and is listed."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("0*.md"))


def test_numbers_are_given_once_and_said():
    numbers = [int(path.name[:4]) for path in PAGES]
    assert len(numbers) == len(set(numbers))
    for number, path in zip(numbers, PAGES, strict=True):
        assert path.read_text(encoding="utf-8").startswith(f"# {number}. "), path.name


def test_all_are_listed_in_their_order():
    listed = re.findall(
        r"^(\d+)\. \[.+\]\((.+)\)$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert listed == [(str(int(path.name[:4])), path.name) for path in PAGES]
