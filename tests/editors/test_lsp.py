"""`kvgen lsp`, as an editor meets it: a process, messages, a file that is being typed."""

import subprocess
import sys

import pytest

from kvgen import listing
from kvgen.fmt import format_text
from tests.cli.conftest import BAD, GOOD
from tests.editors.client import URI, Editor, apply, cut

MODEL = """\
kvgen 1

policy Local {
    heads    query 8 kv 4
    dim      64
    window   16
}

policy Global from Local {
    window   full
}

model Both {
    layers   12
    repeat   Local * 5, Global
    share    11 from 5
}
"""


@pytest.fixture(scope="module")
def session():
    with Editor() as editor:
        editor.open(GOOD)
        yield editor


@pytest.fixture
def editor(session):
    """The one server of this file, with a clean text."""
    assert session.type(GOOD) == []
    return session


def test_what_it_can_do(editor):
    can = editor.can["capabilities"]
    assert can["hoverProvider"] and can["definitionProvider"] and can["documentFormattingProvider"]
    assert can["completionProvider"] is not None
    assert can["codeActionProvider"]["codeActionKinds"] == ["quickfix", "source.fixAll.kvgen"]
    assert can["textDocumentSync"]["change"] == 1
    assert editor.can["serverInfo"]["name"] == "kvgen"


# -- Problems


def test_problems_come_and_go_while_typing(editor):
    (found,) = editor.type(BAD)
    assert (found["code"], found["severity"], found["source"]) == ("KV206", 1, "kvgen")
    assert cut(BAD, found["range"]) == "8"
    assert "multiple" in found["message"]
    (found,) = editor.type(GOOD.replace("kvgen 1\n\n", ""))
    assert (found["code"], found["severity"]) == ("KV901", 2)
    assert editor.type(GOOD) == []


def test_the_other_places_of_a_problem(editor):
    (found,) = editor.type(GOOD + GOOD.replace("kvgen 1\n\n", ""))
    (other,) = found["relatedInformation"]
    assert found["code"] == "KV301"
    assert other["location"]["uri"] == URI
    assert other["location"]["range"]["start"] == {"line": 2, "character": 7}


def test_columns_are_utf16_units(editor):
    text = GOOD.replace("    window", "# 🜁🜂 größer\n  window").replace("16", "16 🜁 windw 5")
    found = editor.type(text)
    assert {cut(text, one["range"]) for one in found} >= {"🜁"}


@pytest.mark.parametrize("text", ["", "\ufeff", "{", "policy", "\0", "policy A {" * 50, "é" * 99])
def test_any_text_is_answered(editor, text):
    editor.type(text)
    for method in ("hover", "completion", "definition"):
        editor.at(method, text + "|")
    editor.formatted()
    assert isinstance(editor.actions(0), list)


def test_a_closed_file_has_no_problems(editor):
    editor.type(BAD)
    editor.tell("textDocument/didClose", textDocument={"uri": URI})
    assert editor.problems() == []
    assert editor.open(GOOD) == []


def test_a_tuned_table_beside_the_file_has_its_own_problems(tmp_path):
    policy, table = tmp_path / "a.kv", tmp_path / "a.tune.json"
    table.write_text('{"kvgen_tune": 2}')
    opened = {"uri": policy.as_uri(), "languageId": "kvgen", "version": 0, "text": GOOD}
    with Editor() as editor:
        editor.tell("textDocument/didOpen", textDocument=opened)
        own, beside = (editor.hear("textDocument/publishDiagnostics") for _ in range(2))
        assert own["uri"] == policy.as_uri() and own["diagnostics"] == []
        assert beside["uri"] == table.as_uri()
        assert [one["code"] for one in beside["diagnostics"]] == ["KV911"]
        table.unlink()
        document, change = {"uri": policy.as_uri(), "version": 1}, {"text": GOOD + "# more\n"}
        editor.tell("textDocument/didChange", textDocument=document, contentChanges=[change])
        own, beside = (editor.hear("textDocument/publishDiagnostics") for _ in range(2))
        assert beside["uri"] == table.as_uri() and beside["diagnostics"] == []


# -- Hover


def hover(editor, text):
    found = editor.at("hover", text)
    return found and found["contents"]["value"]


@pytest.mark.parametrize("word", ["heads", "dim", "window", "storage"])
def test_hover_of_a_clause_is_its_page(editor, word):
    assert hover(editor, GOOD.replace(word, word[0] + "|" + word[1:], 1)) == listing.page(word)


def test_hover_of_an_option_is_the_page_of_its_clause(editor):
    assert hover(editor, GOOD.replace("slack", "sl|ack")) == listing.page("storage")


def test_hover_of_a_problem_begins_with_its_page(editor):
    text = hover(editor, GOOD.replace("window   16", "window   0|"))
    assert text.startswith(listing.page("KV201")) and listing.page("window") in text


def test_hover_of_a_name_is_its_policy(editor):
    for name in ("from Lo|cal", "repeat   Lo|cal", "share    11 from |5"):
        plain = name.replace("|", "")
        assert "policy" in hover(editor, MODEL.replace(plain, name))
    assert "window   full" in hover(editor, MODEL.replace("from 5", "from |5"))


def test_hover_of_nothing(editor):
    assert hover(editor, GOOD.replace("policy", "po|licy")) is None
    assert hover(editor, GOOD + "|") is None


# -- Completion


def words(editor, text):
    return [one["label"] for one in editor.at("completion", text)]


def test_clauses_of_a_policy_that_it_does_not_have_yet(editor):
    found = words(editor, GOOD.replace("    window   16\n", "    |\n"))
    assert found == [
        "dtype",
        "scale",
        "softcap",
        "sink_logits",
        "window",
        "sinks",
        "chunk",
        "stateless",
        "padding",
        "trim",
    ]


def test_a_word_in_hand_does_not_count_as_written(editor):
    for part in ("w|", "wind|", "window|", "|windw"):
        assert "window" in words(editor, GOOD.replace("window   16", part))


@pytest.mark.parametrize(
    ("clause", "options"),
    [
        ("heads |", ["query"]),
        ("heads query 8 |", ["kv"]),
        ("dtype |", ["f32", "f16", "bf16"]),
        ("dtype b|", ["f32", "f16", "bf16"]),
        ("storage |", ["contiguous", "fixed", "ring"]),
        ("trim |", ["off", "guarded"]),
        ("window |", ["full"]),
        ("dim key 8 |", ["value"]),
    ],
)
def test_options_of_a_clause(editor, clause, options):
    found = editor.at("completion", f"kvgen 1\npolicy A {{\n    {clause}\n}}\n")
    assert sorted(one["label"] for one in found) == sorted(options)
    assert {one["documentation"]["value"] for one in found} == {listing.page(clause.split()[0])}


def test_what_continues_a_clause_comes_first(editor):
    found = editor.at("completion", "kvgen 1\npolicy A { storage ring | }")
    found.sort(key=lambda one: one["sortText"])
    assert [one["label"] for one in found][:2] == ["slack", "heads"]


def test_clauses_of_a_model_and_names_of_policies(editor):
    assert words(editor, MODEL.replace("    share    11 from 5", "    |")) == ["share"]
    assert words(editor, MODEL.replace("Local * 5,", "Local * 5, |")) == ["Local", "Global"]
    assert words(editor, MODEL.replace("from Local", "from |")) == ["Local"]
    assert words(editor, MODEL.replace("11 from 5", "11 |")) == ["from"]


def test_the_top_of_a_file(editor):
    assert words(editor, "|") == ["kvgen 1", "policy", "model"]
    assert words(editor, GOOD + "po|") == ["policy", "model"]
    assert words(editor, "kvgen 1\npolicy A |") == ["from"]


@pytest.mark.parametrize("text", ["# win|", "policy A { window 51|", "policy A { window 4_|", "§|"])
def test_nothing_to_complete(editor, text):
    assert words(editor, f"kvgen 1\n{text}\n") in ([], ["policy", "model"])


# -- Going to a policy


@pytest.mark.parametrize(
    ("place", "line"),
    [("from Lo|cal", 2), ("repeat   |Local", 2), ("Global|\n    share", 8), ("from |5", 8)],
)
def test_definitions(editor, place, line):
    found = editor.at("definition", MODEL.replace(place.replace("|", ""), place))
    assert found["uri"] == URI
    assert found["range"]["start"] == {"line": line, "character": 7}


def test_no_definition(editor):
    assert editor.at("definition", MODEL.replace("16", "1|6")) is None
    assert editor.at("definition", MODEL.replace("from Local", "from Lo|st")) is None


# -- Formatting and fixes


def test_formatting(editor):
    ugly = GOOD.replace("    ", " ").replace("\n\n", "\n\n\n\n")
    editor.type(ugly)
    edits = editor.formatted()
    assert apply(ugly, edits) == format_text(ugly, "a.kv")[0] == GOOD
    editor.type(GOOD)
    assert editor.formatted() == []
    editor.type("policy {")
    assert editor.formatted() == []


def test_a_quick_fix_mends_its_problem(editor):
    text = GOOD.replace("window", "windw")
    found = editor.type(text)
    fix, everything = editor.actions(5, diagnostics=found)
    assert fix["title"] == "write `window` for `windw`"
    assert (fix["kind"], fix["isPreferred"], fix["diagnostics"]) == ("quickfix", True, found)
    assert apply(text, fix["edit"]["changes"][URI]) == GOOD
    assert everything["kind"] == "source.fixAll.kvgen"
    assert apply(text, everything["edit"]["changes"][URI]) == GOOD


def test_a_name_is_changed_everywhere(editor):
    text = MODEL.replace("Local", "lambda")
    editor.type(text)
    fix, _ = editor.actions(2)
    assert apply(text, fix["edit"]["changes"][URI]) == MODEL.replace("Local", "lambda_")


def test_only_the_kinds_that_are_asked_for(editor):
    editor.type(GOOD.replace("window", "windw"))
    assert [one["kind"] for one in editor.actions(5, ["quickfix"])] == ["quickfix"]
    assert [one["kind"] for one in editor.actions(5, ["source.fixAll"])] == ["source.fixAll.kvgen"]
    assert editor.actions(5, ["refactor"]) == []
    assert [one["kind"] for one in editor.actions(0)] == ["source.fixAll.kvgen"]


# -- The process


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_an_editor_may_count_otherwise(encoding):
    with Editor(general={"positionEncodings": [encoding]}) as editor:
        assert editor.can["capabilities"]["positionEncoding"] == encoding
        (found,) = editor.open(GOOD.replace("    window   16", "🜁    window   16"))
        size = {"utf-8": 4, "utf-16": 2, "utf-32": 1}[encoding]
        assert found["range"]["end"]["character"] == size


@pytest.mark.parametrize(("polite", "status"), [(True, 0), (False, 1)])
def test_the_end(polite, status):
    with Editor() as editor:
        if polite:
            editor.ask("shutdown")
        editor.tell("exit")
        assert editor.process.wait(30) == status


def test_an_editor_that_goes_away_ends_it():
    with Editor() as editor:
        editor.process.stdin.close()
        editor.process.wait(30)


def test_without_the_extra_it_says_what_to_install(tmp_path):
    """A machine without pygls: status 2, as for everything that is asked for wrongly."""
    text = "raise ModuleNotFoundError(\"No module named 'pygls'\", name='pygls')"
    (tmp_path / "pygls.py").write_text(text)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kvgen.cli import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code, "lsp"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "kvgen: kvgen lsp needs pygls: pip install 'kvgen[lsp]'\n"
    assert done.stdout == ""
