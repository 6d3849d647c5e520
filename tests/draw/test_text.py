"""The terminal's picture, whole, against a golden file; `KVGEN_UPDATE_GOLDEN=1` writes it anew."""

import os
from pathlib import Path

from kvgen.draw import draw
from tests.draw.conftest import program_of

GOLDEN = Path(__file__).parent / "golden.txt"
TEXT = """kvgen 1

policy Tail {
    heads    query 4 kv 2
    dim      64
    window   6
    sinks    2
    storage  ring slack 2
    padding  left right
}

policy Runs {
    heads    query 4 kv 2
    dim      64
    window   3
    chunk    5
}

model Both {
    layers   6
    repeat   Tail * 2, Runs
    share    4 from 3
}
"""


def test_text():
    drawn = draw(program_of(TEXT, "golden.kv"), "text")
    if os.environ.get("KVGEN_UPDATE_GOLDEN"):
        GOLDEN.write_text(drawn, "utf-8")
    assert drawn == GOLDEN.read_text("utf-8")


def test_every_policy_fits_a_terminal(program):
    assert max(map(len, draw(program, "text").splitlines())) <= 120
