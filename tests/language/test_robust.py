"""Nothing that a file can hold gives a traceback, hangs, or takes more time than the file is long."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgen.fmt import format_text
from kvgen.grammar import grammar
from kvgen.nearest import Nearest, distance
from kvgen.pipeline import check_bytes, check_text
from kvgen.report import render

ROOT = Path(__file__).parents[2]
REAL = [path.read_text("utf-8") for path in sorted((ROOT / "policies").glob("*.kv"))]
WORDS = [
    *grammar().words.values(),
    *("{", "}", ",", "*", "# x\n", "\n", "\r\n", "\0", "\ud800", "\xa0", "é", ";", "=", "//", "-5", "4kb", "1e3", "0"),
    *("512", "4k", "99999999999999999999", "Local", "Global", "windw", "A", "lambda", "_x", "a.b"),
]  # fmt: skip
bounded = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def hold(text):
    """All that may be asked of any text."""
    checked = check_text(text, "net.kv")
    assert (checked.program is None) == any(one.is_error for one in checked.diagnostics)
    for style in ("full", "concise", "json", "github"):
        render(checked.diagnostics, style).encode("utf-8")
    made, unread = format_text(text, "net.kv")
    assert (made is None) == bool(unread)
    if made is None:
        return
    again = check_text(made, "net.kv")
    assert format_text(made, "net.kv") == (made, ())
    assert again.program == checked.program
    assert sorted(one.code for one in again.diagnostics) == sorted(
        one.code for one in checked.diagnostics
    )


@bounded
@given(st.binary(max_size=300))
def test_bytes(data):
    check_bytes(data, "net.kv")


@bounded
@given(st.text(max_size=300))
def test_characters(text):
    hold(text)


@bounded
@given(st.lists(st.sampled_from(WORDS), max_size=80))
def test_words_in_any_order(words):
    hold(" ".join(words))


@bounded
@given(st.sampled_from(REAL), st.data())
def test_real_files_with_mistakes(text, data):
    parts = re.findall(r"\s+|\S+", text)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(parts) - 1))
        match data.draw(st.sampled_from(["drop", "add", "change", "cut", "swap"])):
            case "drop":
                parts[place] = ""
            case "add":
                parts[place] += " " + data.draw(st.sampled_from(WORDS)) + " "
            case "change":
                parts[place] = data.draw(st.sampled_from(WORDS))
            case "cut":
                parts[place] = parts[place][: data.draw(st.integers(0, 9))]
            case _:
                other = data.draw(st.integers(0, len(parts) - 1))
                parts[place], parts[other] = parts[other], parts[place]
    hold("".join(parts))


@pytest.mark.parametrize("cut", range(0, 700, 7))
def test_a_file_that_breaks_off(cut):
    hold(REAL[1][:cut])


# -- Size and time


def policies(count, body):
    return "kvgen 1\n" + "".join(
        f"policy P{i} {{\n    heads    query 8 kv 4\n    dim      64\n{body}\n}}\n"
        for i in range(count)
    )


HOSTILE = {
    "right": lambda n: policies(n // 90, "    window   512\n    storage  ring slack 7"),
    "misspelt": lambda n: policies(n // 90, "    winodw   512\n    stroage  rnig slack 7"),
    "misspelt each in its own way": lambda n: policies(n // 90, "").replace("heads", "haeds")
    + "".join(f"policy Q{i} from R{i} {{ x{i}indow {i} }}\n" for i in range(n // 90)),
    "one line": lambda n: policies(n // 90, " windw 5 wnidow 6 foo 7").replace("\n", " "),
    "a chain": lambda n: "".join(f"policy P{i} from P{i + 1} {{ }}\n" for i in range(n // 30)),
    "a circle": lambda n: "".join(f"policy P{i} from P{(i + 1) % (n // 30)} {{ }}\n" for i in range(n // 30)),
    "one name": lambda n: "policy A {}\n" * (n // 12),
    "one clause": lambda n: "policy A {" + "window 5\n" * (n // 9) + "}",
    "no ends": lambda n: "policy A { " * (n // 11),
    "braces": lambda n: "{ } } { " * (n // 8),
    "words": lambda n: "policy " * (n // 7),
    "signs": lambda n: "policy A { window " + "; 5 = 6 " * (n // 8),
    "a long word": lambda n: "policy A { " + "a" * n + "é",
    "a long number": lambda n: "policy A { window " + "9" * n + " scale 0." + "1" * n,
    "a long odd number": lambda n: "policy A { window " + "9_9" * (n // 3) + "x scale " + "1" * n + "e1x",
    "a long comment": lambda n: "#" * n,
    "comments": lambda n: "policy A { heads " + "#\n" * (n // 2) + " query 8 kv 4 dim 8 }",
    "NUL": lambda n: "\0" * n,
    "lines": lambda n: "\r\n\r" * (n // 3),
    "a long repeat": lambda n: policies(1, "")
    + "model M { layers 9 repeat " + ", ".join(["P0 * 4k"] * (n // 10)) + " }",
    "shares": lambda n: policies(1, "") + "model M { layers 9223372036854775807 repeat P0 * 4k, P0"
    + "".join(f" share {i + 1} from 0" for i in range(n // 18)) + " }",
    "unknown policies": lambda n: policies(1, "")
    + "model M { layers 9 repeat " + ", ".join(f"Q{i}" for i in range(n // 8)) + " }",
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_time_is_linear(kind):
    """Ten times the text takes about ten times the time: far from the hundred of a quadratic step."""
    make = HOSTILE[kind]
    small, large = make(10_000), make(100_000)
    check_text(small, "net.kv")
    one = min(spent(small), spent(small))
    assert spent(large) < 40 * one + 0.5


def spent(text):
    start = time.process_time()
    render(check_text(text, "net.kv").diagnostics)
    return time.process_time() - start


@pytest.mark.parametrize("kind", ["right", "misspelt"])
def test_a_megabyte_within_ten_seconds(kind):
    text = HOSTILE[kind](1_000_000)
    assert len(text) > 1_000_000
    start = time.process_time()
    checked = check_text(text, "net.kv")
    render(checked.diagnostics)
    assert time.process_time() - start < 10
    mistakes = text.count("winodw") + text.count("stroage") + text.count("rnig")
    assert len(checked.diagnostics) == mistakes
    assert mistakes > 25_000 or kind == "right"


# -- Text cannot become code


HOSTILE_TEXTS = [
    '"""',
    "'''",
    "\\",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "__import__('os')",
    "\u202e",
    "\r",
    "${HOME}",
]


@pytest.mark.parametrize("evil", HOSTILE_TEXTS)
def test_only_names_pass_as_names(evil):
    for text in (
        f"policy {evil} {{ }}",
        f"policy A from {evil} {{ }}",
        f"model M {{ repeat {evil} }}",
    ):
        checked = check_text(f"kvgen 1\n{text}", "net.kv")
        assert checked.program is None
        for declaration in checked.syntax.declarations:
            for word in (declaration.name, declaration.parent):
                assert word is None or re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*|", word.text)


@pytest.mark.parametrize("evil", HOSTILE_TEXTS)
def test_comments_reach_only_the_formatted_text(evil):
    text = f"kvgen 1\npolicy A {{ heads query 8 kv 4 # {evil}\n dim 8 }} # {evil}\n"
    checked = check_text(text, "net.kv")
    plain = check_text("kvgen 1\npolicy A { heads query 8 kv 4\n dim 8 }\n", "net.kv")
    if "\r" not in evil:
        assert [(p.name, p.heads) for p in checked.program.policies] == [
            (p.name, p.heads) for p in plain.program.policies
        ]
        assert all(evil not in origin.text for origin in checked.program.policies[0].origins)


# -- Parts


def test_the_command_line_starts_without_what_it_may_not_need():
    code = "import sys, kvgen.cli, kvgen.pipeline; print(*{'lark', 'jinja2', 'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@given(st.text("abcd", max_size=6), st.lists(st.text("abcd", min_size=1, max_size=6), max_size=8))
@settings(max_examples=200, deadline=None)
def test_nearest_is_as_near_as_a_full_search(word, known):
    found = Nearest(known, 2).ranked(word)
    best = min((distance(word, other) for other in known), default=9)
    allowed = 0 if len(word) < 2 else 1 if len(word) < 5 else 2
    assert (found[0] if found else 9) == (best if best <= allowed else 9)
