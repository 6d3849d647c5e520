"""kv.lark is the one description of the language: the lists elsewhere agree with it, and its examples are read by it."""

import re
from pathlib import Path

import pytest

from kvgen import grammar as loader
from kvgen.clauses import ALL, FORMS, MODEL, POLICY
from kvgen.grammar import grammar
from kvgen.ir import DType
from kvgen.parse import parse
from kvgen.source import SourceFile
from kvgen.words import words

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"((?:^// .*\n)+)^(\w+): ", re.MULTILINE)
# The comment block right above a rule holds its examples, one a line.
EXAMPLES = [
    (name, line.removeprefix("// "))
    for comments, name in RULE.findall(loader.text())
    for line in comments.splitlines()
    if name in FORMS or name in ("version", "policy", "model")
]


def test_the_clauses_are_those_of_the_grammar():
    types = grammar().types
    assert {types[kind.keyword] for kind in POLICY} == grammar().clauses["policy"]
    assert {types[kind.keyword] for kind in MODEL} == grammar().clauses["model"]


def test_the_dtypes_are_those_of_the_grammar():
    assert {dtype.value for dtype in DType} <= set(grammar().words.values())


def test_every_word_of_the_grammar_is_documented():
    documented = {word for form in FORMS.values() for text in form for word in text.split()}
    others = {"kvgen", "policy", "model", "from"}
    assert set(grammar().words.values()) <= documented | others


def test_clauses_and_options_are_different_words():
    """Skipping to the next clause after a mistake relies on it."""
    clauses = {kind.keyword for kind in ALL}
    options = set(grammar().words.values()) - clauses
    assert not clauses & options
    assert words().any_clause == frozenset(grammar().types[word] for word in clauses)


def test_each_rule_of_a_clause_has_an_example():
    assert {name for name, _ in EXAMPLES} >= set(FORMS)


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_the_examples_of_the_grammar_are_read(rule, example):
    kind = "model" if rule in ("layers", "repeat", "share") else "policy"
    whole = example if rule in ("version", "policy", "model") else f"{kind} X {{ {example} }}"
    file, problems = parse(SourceFile.of(whole, "example.kv"))
    assert problems == ()
    if rule in FORMS:
        assert [clause.keyword for clause in file.declarations[0].clauses] == [rule]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.keyword)
def test_the_forms_of_a_clause_are_read(kind):
    of = "model" if kind in MODEL else "policy"
    for form in kind.forms:
        text = re.sub(r"\b(N|M|D|E|G|L)\b", "8", form).replace(" X", " 0.5")
        _, problems = parse(SourceFile.of(f"{of} Y {{ {text} }}", "form.kv"))
        assert problems == (), form


def test_a_checkout_finds_the_grammar_beside_the_package():
    assert loader.text() == (ROOT / "grammars" / "kv.lark").read_text("utf-8")


def test_an_installed_package_finds_the_grammar_inside(tmp_path, monkeypatch):
    (tmp_path / "kv.lark").write_text("// inside", "utf-8")
    monkeypatch.setattr(loader.resources, "files", lambda package: tmp_path)
    assert loader.text() == "// inside"


def test_a_scan_gives_back_the_whole_text():
    text = "policy é{window=4k;\0# x\n\u2028 -5..6 a-b\x0b\ufeff}"
    scanned = "".join(token.text for token in grammar().tokens(text))
    assert scanned == re.sub(r"[ \t\f\r\n]", "", text) or set(scanned) >= set(text) - set(" \n")


def test_lark_reads_the_real_policies_too():
    """Lark's own lexer and parser on the files as they are: the recovering parser adds nothing to the language."""
    for path in sorted((ROOT / "policies").glob("*.kv")):
        tree = grammar().lark.parse(path.read_text("utf-8"), start="file")
        file, problems = parse(SourceFile.of(path.read_text("utf-8"), path.name))
        assert problems == ()
        assert len(list(tree.find_data("policy"))) == sum(
            d.kind == "policy" for d in file.declarations
        )
