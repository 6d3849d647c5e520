"""Every list of the language's words says the same: grammar, clauses, pages, both highlighters, completion."""

import json
import re
from pathlib import Path

import pytest
from pygments.token import Error, Keyword, Literal, Name, Text

from kvgen import listing
from kvgen.clauses import ALL, FORMS, MODEL, POLICY
from kvgen.grammar import text as grammar_text
from kvgen.highlight.pygments import KvLexer
from kvgen.highlight.textmate import textmate
from kvgen.highlight.vocabulary import vocabulary

ROOT = Path(__file__).parents[2]
VSCODE = ROOT / "editors/vscode"


def spoken(form):
    """The words of a form: `trim guarded bypass G` has three."""
    return set(re.findall(r"\b[a-z][a-z0-9_]*\b", form))


def test_the_grammar_the_clauses_and_the_pages_have_the_same_words():
    words = vocabulary()
    assert words.clauses == tuple(kind.keyword for kind in ALL)
    assert words.declarations == ("policy", "model")
    assert set(words.clauses) <= set(listing.explained())
    in_grammar = set(re.findall(r'"([a-z]\w*)"', grammar_text()))
    assert in_grammar == {words.version, *words.declarations, *words.clauses, *words.options}
    in_forms = set.union(*(spoken(form) for forms in FORMS.values() for form in forms))
    assert in_forms == {*words.clauses, *words.options}


def test_the_textmate_grammar_is_the_generated_one():
    path = VSCODE / "syntaxes/kv.tmLanguage.json"
    command = f"python -m kvgen.highlight.textmate > {path.relative_to(ROOT)}"
    assert path.read_text("utf-8") == textmate(), command


def test_the_textmate_grammar_knows_each_word_by_its_kind():
    parts = json.loads(textmate())["repository"]
    words = vocabulary()
    for kind, known in (("clause", words.clauses), ("option", words.options)):
        assert all(re.fullmatch(parts[kind]["match"], word) for word in known)
        assert not re.search(parts[kind]["match"], "windows sliding_window ring-5 kvgen policy")
    head = re.compile(parts["declaration"]["match"])
    assert head.match("policy window from trim {").groups() == ("policy", "window", "from", "trim")
    assert head.match("model M {").groups() == ("model", "M", None, None)
    assert re.fullmatch(parts["number"]["match"], "4_096")
    assert re.fullmatch(parts["number"]["match"], "1e-3")


def tokens(text):
    return [(kind, word) for kind, word in KvLexer().get_tokens(text) if word.strip()]


@pytest.mark.parametrize("path", sorted((ROOT / "policies").glob("*.kv")), ids=lambda p: p.stem)
def test_the_lexer_knows_all_of_a_policy(path):
    text = path.read_text("utf-8")
    found = tokens(text)
    assert not [word for kind, word in found if kind in (Text, Error)]
    assert "".join(word for _, word in KvLexer().get_tokens(text)) == text


def test_the_lexer_tells_words_from_names():
    words = vocabulary()
    assert all(tokens(word) == [(Keyword, word)] for word in words.clauses)
    assert all(tokens(word) == [(Name.Builtin, word)] for word in words.options)
    assert tokens("policy window from trim { window 4k 1x }") == [
        (Keyword.Declaration, "policy"),
        (Name.Class, "window"),
        (Keyword.Declaration, "from"),
        (Name.Class, "trim"),
        *tokens("{ window"),
        (Literal.Number, "4k"),
        (Text, "1x"),
        *tokens("}"),
    ]


def test_the_lexer_is_an_entry_point():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    module, name = re.search(r'pygments\.lexers"\]\nkv = "(.*):(.*)"', project).groups()
    assert (module, name) == (KvLexer.__module__, KvLexer.__name__)
    assert "kv" in KvLexer.aliases


def test_the_vs_code_folder_is_whole():
    package = json.loads((VSCODE / "package.json").read_text("utf-8"))
    made = package["contributes"]
    files = [package["main"], made["grammars"][0]["path"], made["languages"][0]["configuration"]]
    assert all((VSCODE / file).is_file() for file in files)
    json.loads((VSCODE / made["languages"][0]["configuration"]).read_text("utf-8"))
    assert made["grammars"][0]["scopeName"] == json.loads(textmate())["scopeName"]
    assert re.match(made["languages"][0]["firstLine"], "kvgen 1")
    assert {kind.keyword for kind in POLICY + MODEL} == set(vocabulary().clauses)
