"""Every diagnostic: a file that has it, what is printed, and the file put right. Every page: a bad and a good example.

`cases/KV203-fixed.kv` has the problem KV203 in a variant, `.txt` is the full report, `.fixed.kv` is free of problems.
"""

import re
from pathlib import Path

import pytest

from kvgen import listing
from kvgen.clauses import ALL
from kvgen.diagnostics import CODES
from kvgen.mend import edited
from kvgen.pipeline import check_bytes, check_text
from kvgen.report import render

CASES = Path(__file__).parent / "cases"
STEMS = sorted(path.stem for path in CASES.glob("KV*.kv") if not path.stem.endswith(".fixed"))

OF_TABLES = {"KV911", "KV912"}  # of what `kvgen tune` wrote: tests/triton/test_tuned.py

# The lists of the language's description, word for word, and the cases of each entry.
REFUSED = {
    "no heads or dim": ("KV204", "KV205"),
    "query heads not a multiple of kv heads": ("KV206",),
    "a count below 1 (window, dim, heads, chunk, layers)": (
        "KV201",
        "KV201-dim",
        "KV201-dim-value",
        "KV201-heads",
        "KV201-chunk",
        "KV201-layers",
        "KV201-fixed",
        "KV201-repeat",
        "KV201-negative",
        "KV201-none",
    ),
    "a number beyond 63 bits": ("KV202", "KV202-k", "KV202-layers"),
    "`storage ring` without window or chunk": ("KV209", "KV209-full", "KV209-copied"),
    "slack without a ring": ("KV203", "KV203-fixed", "KV203-fixed-open"),
    "slack smaller than the declared bypass": ("KV210", "KV210-copied"),
    "sinks with a chunk": ("KV211", "KV211-copied"),
    "`stateless` beside `storage`, `trim` or left padding in its own policy": (
        "KV213",
        "KV214",
        "KV215-own",
    ),
    "or over inherited left padding": ("KV215",),
    "bypass with `trim off`": ("KV212",),
    "`from` in a circle or of an unknown name": (
        "KV306",
        "KV306-itself",
        "KV306-three",
        "KV305",
        "KV305-case",
        "KV305-model",
    ),
    "a clause or name twice": (
        "KV207",
        "KV207-same",
        "KV207-model",
        "KV301",
        "KV301-model",
        "KV411",
    ),
    "an unknown word (with the nearest known one)": (
        "KV101",
        "KV101-foreign",
        "KV101-model",
        "KV102",
        "KV102-storage",
        "KV107",
        "KV113-misspelt",
    ),
    "a model layer sharing from a later layer": ("KV406",),
    "itself": ("KV405",),
    "a layer that shares": ("KV407",),
    "a layer out of range": ("KV404", "KV404-donor"),
    "one whose policy differs in heads, dims, dtype, window, sinks or chunk": ("KV408",),
    "a model whose policies differ in query heads or dtype": ("KV409", "KV410"),
    "names: letters, at most 64 characters, no Python keyword": (
        "KV304",
        "KV304-digit",
        "KV304-underscore",
        "KV304-letter",
        "KV303",
        "KV302",
        "KV302-none",
    ),
    "`scale` and `softcap` take any finite number above 0": (
        "KV208",
        "KV208-infinite",
        "KV208-negative",
        "KV208-tiny",
        "KV208-none",
    ),
}
WARNED = {
    "sinks without a window": ("KV902", "KV902-full", "KV902-copied"),
    "sinks not smaller than the window": ("KV903", "KV903-equal"),
    "a chunk below the window": ("KV904",),
    "bypass without a ring": ("KV905", "KV905-contiguous", "KV905-fixed", "KV905-copied"),
    "a missing first line": ("KV901", "KV901-empty"),
}


def check(path):
    return check_bytes(path.read_bytes(), path.name)


@pytest.mark.parametrize("stem", STEMS)
def test_a_bad_file_says_what_it_always_said(stem):
    checked = check(CASES / f"{stem}.kv")
    assert {one.code for one in checked.diagnostics} == {stem[:5]}
    assert render(checked.diagnostics) == (CASES / f"{stem}.txt").read_text("utf-8")


@pytest.mark.parametrize("stem", STEMS)
def test_the_file_put_right_compiles(stem):
    checked = check(CASES / f"{stem}.fixed.kv")
    assert checked.diagnostics == ()
    assert checked.program is not None


@pytest.mark.parametrize("stem", STEMS)
def test_every_problem_has_a_reason_and_a_way_out(stem):
    for one in check(CASES / f"{stem}.kv").diagnostics:
        assert one.message and one.primary.text and one.help
        assert one.code in CODES


def test_a_fix_mends_its_problem():
    mended = 0
    for stem in STEMS:
        checked = check(CASES / f"{stem}.kv")
        for one in checked.diagnostics:
            if one.fix is None:
                continue
            again = check_text(edited(checked.source, one.edits), "again.kv")
            assert len(again.diagnostics) < len(checked.diagnostics), stem
            mended += 1
    assert mended > 15


def test_every_code_has_a_case():
    assert {stem[:5] for stem in STEMS} | OF_TABLES == set(CODES)


@pytest.mark.parametrize("listed", [REFUSED, WARNED], ids=["refused", "warned"])
def test_every_entry_of_the_description_has_its_cases(listed):
    for stems in listed.values():
        assert set(stems) <= set(STEMS)


def test_warnings_leave_the_program_and_errors_do_not():
    for stem in STEMS:
        program = check(CASES / f"{stem}.kv").program
        assert (program is not None) == stem.startswith("KV9"), stem


# -- Pages


def examples(page):
    return re.findall(r"```kv\n(.*?)```", page, re.DOTALL)


@pytest.mark.parametrize("code", [code for code in CODES if code not in {"KV100", *OF_TABLES}])
def test_a_page_of_a_code_fails_with_it_and_then_compiles(code):
    page = listing.page(code)
    bad, good = examples(page)
    assert page.startswith(f"# {code}: {CODES[code]}\n")
    assert {one.code for one in check_text(bad, "bad.kv").diagnostics} == {code}
    assert check_text(good, "good.kv").diagnostics == ()


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.keyword)
def test_a_page_of_a_clause_fails_and_then_compiles(kind):
    page = listing.page(kind.keyword)
    bad, good = examples(page)
    assert all(f"    {form}\n" in page for form in kind.forms)
    assert check_text(bad, "bad.kv").program is None
    checked = check_text(good, "good.kv")
    assert checked.diagnostics == ()
    assert re.search(rf"^    {kind.keyword}\b", good, re.MULTILINE)


def test_no_page_is_of_nothing():
    folder = Path(listing.__file__).parent / "explain"
    assert {path.stem for path in folder.glob("*.md")} == set(listing.explained())
