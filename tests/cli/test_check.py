"""`kvgen check`, and what all commands share: PATHs, streams, formats, exit statuses."""

import json

import pytest

from tests.cli.conftest import BAD, GOOD, WARNED

pytestmark = pytest.mark.usefixtures("files")


def test_a_clean_file_says_nothing(kvgen):
    result = kvgen("check", "good.kv")
    assert (result.exit_code, result.output) == (0, "")


def test_problems_go_to_stderr_with_their_place(kvgen):
    result = kvgen("check", "bad.kv")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "error[KV206]" in result.stderr and "--> bad.kv:4:20" in result.stderr
    assert "kvgen explain KV206" in result.stderr


def test_a_warning_leaves_the_status_at_0(kvgen):
    result = kvgen("check", "warned.kv")
    assert result.exit_code == 0
    assert "warning[KV901]" in result.stderr


def test_all_files_are_judged_in_one_run(kvgen):
    result = kvgen("check", "bad.kv", "good.kv", "warned.kv")
    assert result.exit_code == 1
    assert "KV206" in result.stderr and "KV901" in result.stderr


def test_concise_is_a_line_a_problem(kvgen):
    result = kvgen("check", "--format", "concise", "bad.kv")
    assert result.stderr.startswith("bad.kv:4:20: error[KV206]: ")
    assert result.stderr.count("\n") == 1


def test_json_goes_to_stdout_also_when_there_is_nothing_to_say(kvgen):
    found = json.loads(kvgen("check", "--format", "json", "bad.kv", "warned.kv").stdout)
    assert [(one["code"], one["file"], one["line"]) for one in found] == [
        ("KV206", "bad.kv", 4),
        ("KV901", "warned.kv", 1),
    ]
    assert json.loads(kvgen("check", "--format", "json", "good.kv").stdout) == []


def test_github_annotations_go_to_stdout(kvgen):
    result = kvgen("check", "--format", "github", "bad.kv")
    assert result.stdout.startswith("::error file=bad.kv,line=4,")
    assert result.stderr == ""


def test_text_stops_after_100_problems(kvgen, files):
    clauses = "\n".join(f"    wrong{i} 1" for i in range(250))
    (files / "many.kv").write_text(
        f"kvgen 1\npolicy A {{\n heads query 1 kv 1\n dim 8\n{clauses}\n}}"
    )
    result = kvgen("check", "many.kv")
    assert result.exit_code == 1
    assert result.stderr.count("error[KV101]") == 100
    assert "and 150 more" in result.stderr
    assert len(json.loads(kvgen("check", "--format", "json", "many.kv").stdout)) == 250


# -- PATHs


def test_a_folder_is_all_policies_in_it(kvgen, files):
    (files / "notes.txt").write_text("not a policy")
    result = kvgen("check", "--format", "concise", ".")
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["bad.kv", "warned.kv"]


def test_standard_input_is_named(kvgen):
    result = kvgen("check", "-", "--name", "piped", stdin=BAD)
    assert result.exit_code == 1
    assert "--> piped.kv:4:20" in result.stderr
    assert "--> stdin.kv:4:20" in kvgen("check", "-", stdin=BAD).stderr


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD.replace("\n", "\r\n"),
    ],
)
def test_a_bom_and_crlf_are_accepted(kvgen, text):
    assert kvgen("check", "-", stdin=text.encode()).exit_code == 0


def test_bytes_that_are_not_utf8_are_a_problem_of_the_file(kvgen):
    result = kvgen("check", "-", stdin=b"kvgen 1\n# caf\xe9\n")
    assert result.exit_code == 1
    assert "error[KV100]" in result.stderr and "stdin.kv:2:6" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.kv"], "nosuch.kv: No such file or directory"),
        (["nosuch"], "nosuch: No such file or directory"),
        (["empty"], "there is no .kv file"),
        (["1st.kv"], "`1st` cannot name a Python package"),
        (["my-policy.kv"], "`my-policy` cannot name a Python package"),
        (["class.kv"], "`class` cannot name a Python package"),
        (["policy.txt"], "a policy file ends in .kv"),
        (["good.kv", "more/good.kv"], "would both be the package `good`"),
        (["good.kv", "more/GOOD.kv"], "would both be the package"),
        (["-", "good.kv", "--name", "good"], "would both be the package `good`"),
        (["-", "--name", "a.b"], "cannot name a Python package"),
        (["-", "--name", "x\nimport os"], "cannot name a Python package"),
        (["good.kv", "--name", "x"], "--name names standard input"),
        (["--format", "xml", "good.kv"], "'xml' is not one of"),
        ([], "Missing argument"),
    ],
)
def test_misuse_is_status_2_and_says_what_to_do(kvgen, files, arguments, message):
    (files / "empty").mkdir()
    (files / "more").mkdir()
    for name in (
        "1st.kv",
        "my-policy.kv",
        "class.kv",
        "policy.txt",
        "more/good.kv",
        "more/GOOD.kv",
    ):
        (files / name).write_text(GOOD)
    result = kvgen("check", *arguments, stdin=GOOD)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_file_named_twice_counts_once(kvgen, files):
    result = kvgen("check", "--format", "concise", "bad.kv", files / "bad.kv", ".")
    assert result.stderr.count("KV206") == 1


def test_a_folder_is_a_folder_whatever_its_name(kvgen, files):
    (files / "odd.kv").mkdir()
    assert kvgen("check", "odd.kv").exit_code == 2
    (files / "odd.kv/inside.kv").write_text(GOOD)
    assert kvgen("check", "odd.kv").exit_code == 0, "then it is a folder of policies"
    assert "odd" not in kvgen("check", ".").output


def test_the_warned_text_is_what_it_says(kvgen):
    assert kvgen("check", "-", stdin=WARNED).exit_code == 0
