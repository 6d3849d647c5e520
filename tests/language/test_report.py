"""The four formats, and what may stand in the text that they quote."""

import json
import re

import pytest

from kvgen.pipeline import check_bytes, check_text
from kvgen.report import render

BAD = """kvgen 1

policy Local {
    heads    query 8 kv 4
    dim      256
    window   512
    storage contiguous slack 7
}
"""


def problems(text):
    return check_text(text, "policies/gemma3.kv").diagnostics


def test_full():
    assert (
        render(problems(BAD))
        == """\
error[KV203]: slack without a ring
  --> policies/gemma3.kv:7:24
   |
 7 |     storage contiguous slack 7
   |             ---------- this storage grows, nothing is overwritten
   |                        ^^^^^^^ slack keeps slots for rollback in a ring
   |
   = help: write `storage ring slack 7`, or leave `slack 7` out
   = more: kvgen explain KV203
"""
    )


def test_concise():
    assert render(problems(BAD), "concise") == (
        "policies/gemma3.kv:7:24: error[KV203]: slack without a ring; "
        "write `storage ring slack 7`, or leave `slack 7` out\n"
    )


def test_github():
    assert render(problems(BAD), "github") == (
        "::error file=policies/gemma3.kv,line=7,endLine=7,col=24,endColumn=31,title=KV203::slack without a ring: "
        "slack keeps slots for rollback in a ring. write `storage ring slack 7`, or leave `slack 7` out\n"
    )
    assert render(problems(""), "github").startswith("::warning file=")


def test_json():
    (one,) = json.loads(render(problems(BAD), "json"))
    assert (one["code"], one["severity"], one["line"], one["column"]) == ("KV203", "error", 7, 24)
    assert BAD[one["start"] : one["end"]] == "slack 7"
    assert one["secondary"][0]["line"] == 7
    (edit,) = one["fix"]["edits"]
    assert (edit["line"], edit["column"], edit["replacement"]) == (7, 23, "")
    assert BAD[: edit["start"]] + BAD[edit["end"] :] == BAD.replace(" slack 7", "")
    assert one["help"].startswith("write")


@pytest.mark.parametrize("style", ["full", "concise", "github"])
def test_nothing_to_say(style):
    assert render((), style) == ""


def test_no_problems_in_json_are_an_empty_array():
    assert json.loads(render((), "json")) == []


@pytest.mark.parametrize("style", ["full", "concise"])
def test_text_stops_after_a_hundred_and_counts_the_rest(style):
    found = problems("kvgen 1\n" + "policy A { dim 0 }\n" * 75)
    assert len(found) > 200
    text = render(found, style)
    assert text.count("policies/gemma3.kv:") == 100
    assert text.endswith(f"and {len(found) - 100} more: {len(found) - 100} errors\n")


@pytest.mark.parametrize("style", ["json", "github"])
def test_programs_get_them_all(style):
    found = problems("kvgen 1\n" + "policy A { dim 0 }\n" * 75)
    assert render(found, style).count("KV201") == 75


def test_colour_adds_only_colour():
    found = problems(BAD)
    for style in ("full", "concise"):
        coloured = render(found, style, True)
        assert "\x1b[" in coloured
        assert re.sub(r"\x1b\[\d+m", "", coloured) == render(found, style, False)


def test_the_mark_stands_below_its_word_whatever_is_before_it():
    for before in ("\t", "中文 ", "e\u0301 ", "\0 ", "\x1b[31m "):
        text = render(
            check_text(f"kvgen 1\npolicy A {{ # x\n{before}windw 5 }}", "a.kv").diagnostics
        )
        assert "\x1b" not in text and "\0" not in text and "\t" not in text


def test_wide_characters_move_the_mark():
    text = render(check_text("kvgen 1\n中 policy", "a.kv").diagnostics)
    line, mark = text.splitlines()[3:5]
    assert "中" in line and mark.endswith("^^ a declaration is due here")


def test_a_long_line_is_cut():
    text = render(check_text("kvgen 1 policy A { " + "window 5 " * 5000 + "}", "a.kv").diagnostics)
    assert max(map(len, text.splitlines())) < 200


def test_a_name_of_a_file_cannot_break_a_line():
    found = check_text("policy", "a\nb,:%.kv").diagnostics
    assert all("a?b" in line for line in render(found, "concise").splitlines())
    assert all(line.startswith("::") for line in render(found, "github").splitlines())


def test_bytes_that_are_not_utf8():
    one = check_bytes(b"\xef\xbb\xbfkvgen 1\n# \xe9\n", "a.kv").diagnostics[0]
    assert (one.code, one.place) == ("KV100", (2, 3))


def test_text_that_utf8_cannot_hold():
    for style in ("full", "concise", "json", "github"):
        text = render(check_text("kvgen 1\npolicy \ud800 {}", "a.kv").diagnostics, style)
        text.encode("utf-8")
