"""`kvgen check --fix`: what has one way out is fixed, nothing is made worse, the rest is reported."""

import json
import os
import random
import time

import pytest

from kvgen import listing
from kvgen.diagnostics import CODES
from kvgen.mend import mend
from kvgen.pipeline import check_bytes, check_text
from tests.cli.conftest import BAD, GOOD
from tests.language.test_cases import CASES, OF_TABLES, STEMS, examples

MISSPELT = GOOD.replace("window ", "windw ").replace("ring slack", "rinq slack")


def test_a_file_is_fixed_in_place_and_what_was_done_is_said(kvgen, tmp_path):
    path = tmp_path / "a.kv"
    path.write_text(MISSPELT)
    path.chmod(0o640)
    result = kvgen("check", "--fix", "a.kv")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "a.kv:6:5: fixed[KV101]: unknown clause `windw`; wrote `window` for `windw`\n"
        "a.kv:7:14: fixed[KV102]: unknown word `rinq` in `storage`; wrote `ring` for `rinq`\n"
        "a.kv: 2 problems fixed\n"
    )
    assert path.read_text() == GOOD
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.kv"]


def test_a_clean_file_is_not_touched(kvgen, tmp_path):
    path = tmp_path / "a.kv"
    path.write_text(GOOD)
    path.chmod(0o444)
    stamp = path.stat().st_mtime_ns
    assert kvgen("check", "--fix", ".").output == ""
    assert path.stat().st_mtime_ns == stamp


def test_what_is_left_is_reported_and_decides_the_status(kvgen, tmp_path):
    (tmp_path / "a.kv").write_text(MISSPELT.replace("kv 4", "kv 3"))
    (tmp_path / "b.kv").write_text(MISSPELT)
    result = kvgen("check", "--fix", "--format", "concise", ".")
    assert result.exit_code == 1
    assert "a.kv:4:20: error[KV206]" in result.stderr
    assert (tmp_path / "a.kv").read_text() == BAD
    assert (tmp_path / "b.kv").read_text() == GOOD


def test_a_tuned_table_beside_the_file_is_judged_by_what_it_becomes(kvgen, tmp_path):
    (tmp_path / "a.kv").write_text(MISSPELT)
    (tmp_path / "a.tune.json").write_text("not a table")
    result = kvgen("check", "--fix", "a.kv")
    assert result.exit_code == 0
    assert "2 problems fixed" in result.stderr and "warning[KV911]" in result.stderr


@pytest.mark.parametrize("before", ["", "\ufeff"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_byte_order_mark_and_line_ends_stay(before, ends):
    text = MISSPELT.removeprefix("kvgen 1\n\n").replace("\n", ends)
    mended = mend((before + text).encode(), "a.kv")
    good = GOOD.replace("kvgen 1\n\n", "kvgen 1\n").replace("\n", ends)
    assert mended.text == before + good


def test_standard_input_is_printed_fixed_or_not(kvgen):
    result = kvgen("check", "--fix", "-", stdin=MISSPELT)
    assert (result.exit_code, result.stdout) == (0, GOOD)
    assert "stdin.kv: 2 problems fixed" in result.stderr
    assert kvgen("check", "--fix", "-", stdin=GOOD).stdout == GOOD
    result = kvgen("check", "--fix", "-", stdin=BAD)
    assert (result.exit_code, result.stdout) == (1, BAD)


def test_bytes_that_are_not_utf8_are_left(kvgen, tmp_path):
    (tmp_path / "a.kv").write_bytes(b"policy lambda \xff")
    assert kvgen("check", "--fix", "a.kv").exit_code == 1
    assert (tmp_path / "a.kv").read_bytes() == b"policy lambda \xff"
    assert kvgen("check", "--fix", "-", stdin=b"\xff").stdout == ""


def test_a_name_is_changed_wherever_it_stands():
    text = (
        "kvgen 1 policy lambda { heads query 2 kv 1 dim 8 }\npolicy B from lambda { window 4 }\n"
        "model M { layers 4 repeat lambda * 2, B, lambda }"
    )
    assert mend(text.encode(), "a.kv").text == text.replace("lambda", "lambda_")
    taken = text + "policy Lambda_ from B {}"
    assert mend(taken.encode(), "a.kv").fixed == ()


def test_check_says_how_many_could_be_fixed(kvgen):
    result = kvgen("check", "-", stdin=MISSPELT.replace("kv 4", "kv 3"))
    assert result.stderr.endswith("\n2 of 3 problems can be fixed with --fix\n")
    assert "--fix" not in kvgen("check", "-", stdin=BAD).stderr


def test_json_has_what_is_left_and_the_edits_of_a_fix(kvgen, tmp_path):
    (found,) = json.loads(
        kvgen("check", "--format", "json", "-", stdin=GOOD.replace("dim", "dims")).stdout
    )
    (edit,) = found["fix"]["edits"]
    assert (edit["line"], edit["column"], edit["end_column"]) == (5, 5, 9)
    assert edit["replacement"] == "dim"
    (tmp_path / "a.kv").write_text(MISSPELT)
    result = kvgen("check", "--fix", "--format", "json", "a.kv")
    assert json.loads(result.stdout) == []
    assert "2 problems fixed" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-", "--format", "json"], "--format full or concise"),
        (["-", "--format", "github"], "--format full or concise"),
        (["nosuch.kv"], "nosuch.kv: No such file or directory"),
        (["empty"], "there is no .kv file"),
        (["a.txt"], "a policy file ends in .kv"),
        (["a.kv", "--name", "x"], "--name names standard input"),
        ([], "Missing argument"),
    ],
)
def test_misuse_is_status_2(kvgen, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.kv").write_text(GOOD)
    (tmp_path / "a.txt").write_text(GOOD)
    result = kvgen("check", "--fix", *arguments, stdin=GOOD)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


# -- All fixes there are


@pytest.mark.parametrize("stem", STEMS)
def test_the_fixes_of_a_case_leave_nothing_of_its_code(stem):
    data = (CASES / f"{stem}.kv").read_bytes()
    if all(one.fix is not None for one in check_bytes(data, "a.kv").diagnostics):
        mended = mend(data, "a.kv")
        assert mended.left.diagnostics == ()
        assert mend(mended.text.encode(), "a.kv").text == mended.text


def test_the_bad_example_of_a_page_is_fixed_if_its_problem_has_a_fix():
    fixed = set()
    for code in CODES.keys() - {"KV100", *OF_TABLES}:
        bad, _ = examples(listing.page(code))
        if any(one.fix for one in check_text(bad, "bad.kv").diagnostics):
            mended = mend(bad.encode(), "bad.kv")
            assert code not in {one.code for one in mended.left.diagnostics}
            fixed.add(code)
    assert {"KV101", "KV102", "KV203", "KV212", "KV302", "KV305", "KV901"} <= fixed


def test_no_file_is_made_worse_and_a_second_run_does_nothing():
    """Files with several mistakes: pieces of the cases, put together anew."""
    made = random.Random(0)
    pieces = [
        line
        for stem in STEMS
        for line in (CASES / f"{stem}.kv").read_text("utf-8", "replace").splitlines(keepends=True)
    ]
    for _ in range(150):
        text = "".join(made.choices(pieces, k=made.randint(1, 30)))
        before = check_text(text, "a.kv").diagnostics
        mended = mend(text.encode(), "a.kv")
        after = mended.left.diagnostics
        assert sum(one.is_error for one in after) <= sum(one.is_error for one in before)
        assert len(after) < len(before) or mended.text == text.removeprefix("\ufeff")
        assert mend(mended.text.encode(), "a.kv").fixed == ()


@pytest.mark.parametrize("line", ["windw 512\n", "policy lambda {}\n", "// no\n", "a ;; b\n"])
def test_many_mistakes_are_fixed_in_a_few_readings(line):
    data = (line * (40_000 // len(line))).encode()
    start = time.process_time()
    check_bytes(data, "a.kv")
    once = time.process_time() - start
    mend(data, "a.kv")
    assert time.process_time() - start < 25 * once + 1
