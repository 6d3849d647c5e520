"""`fmt`: one style, every comment kept, the meaning unchanged, a second time nothing to do."""

import random
import re
from pathlib import Path

import pytest

from kvgen.fmt import format_text
from kvgen.pipeline import check_text

ROOT = Path(__file__).parents[2]
POLICIES = sorted((ROOT / "policies").glob("*.kv"))

STYLE = """\
kvgen 1                                  # language version: the first line of every file

policy Local {
    heads    query 8 kv 4
    dim      256
    dtype    bf16
    window   512                         # a query sees itself and the 511 positions before it
    storage  ring slack 7                # 519 slots a row, overwritten in place
    padding  left right
    trim     guarded bypass 7
}

policy LocalTraining from Local {        # a copy of Local's clauses, then these
    stateless                            # drops the inherited storage and trim
    padding  right                       # replaces the inherited padding
    sink_logits
}

model Gemma3 {
    layers   26                          # counted from 0
    repeat   Local * 5, Local            # layer i uses entry i mod 6
    share    24 from 18                  # layer 24 reads layer 18's keys and values (both Local)
}
"""


def fmt(text):
    made, problems = format_text(text, "net.kv")
    assert made is not None, problems
    return made


def test_the_style_is_its_own_format():
    assert fmt(STYLE) == STYLE


def test_any_layout_gets_the_style():
    comments = re.compile(r" *#[^\n]*")
    bare = comments.sub("", STYLE)
    assert fmt(" ".join(bare.split())) == bare
    assert fmt("\n".join(bare.split())) == bare


def test_comments():
    text = """# licence

kvgen 1 # version
# about A
policy A # inside the head
{ # behind the brace
  # first


  heads query 8 # between
     kv 4 dim 8  # both

  window 5
  # last
} # closed
# of B

# at B
policy B from A { }
# end"""
    assert (
        fmt(text)
        == """\
# licence

kvgen 1                                  # version

# about A
# inside the head
policy A {                               # behind the brace
    # first

    # between
    heads    query 8 kv 4
    dim      8                           # both

    window   5
    # last
}                                        # closed
# of B

# at B
policy B from A {
}
# end
"""
    )


def test_a_long_repeat_is_broken():
    names = ", ".join(f"Policy{i} * 4" for i in range(30))
    made = fmt(f"kvgen 1 model M {{ layers 9 repeat {names} }}")
    assert max(map(len, made.splitlines())) <= 100
    assert made.count("\n             Policy") >= 2
    assert fmt(made) == made


def test_numbers_and_names_stay_as_they_are_written():
    made = fmt("kvgen 1 policy X{heads query 0_8 kv 4 dim 4k scale 1E-3}")
    assert "query 0_8 kv 4" in made and "4k" in made and "1E-3" in made


def test_what_cannot_be_read_is_not_formatted():
    made, problems = format_text("policy {", "net.kv")
    assert made is None and problems


def test_what_is_only_refused_is_formatted():
    assert "dim      0" in fmt("policy A { dim 0 }")


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_comments_and_meaning_survive_any_layout(path):
    """Line ends, spaces and comments put in at random between the words of real files."""
    text = path.read_text("utf-8")
    choose = random.Random(path.stem)
    for _ in range(10):
        parts = re.findall(r"#[^\n]*\n|[^\s#]+|\s+", text)
        for i, part in enumerate(parts):
            if part.isspace():
                parts[i] = choose.choice([" ", "\n", "\n\n\n", "\t", f" # {i}\n", part])
        mixed = "".join(parts)
        if not mixed.startswith("kvgen"):
            continue
        before, made = check_text(mixed, "net.kv"), fmt(mixed)
        after = check_text(made, "net.kv")
        assert before.program == after.program
        assert fmt(made) == made
        assert sorted(comments(mixed)) == sorted(comments(made))


def comments(text):
    return [found.rstrip() for found in re.findall(r"#[^\r\n]*", text)]
