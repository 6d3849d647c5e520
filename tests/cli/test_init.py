"""`kvgen init`: a first policy, or those of a config.json."""

import json

import pytest

MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
}


def test_the_first_policy_compiles_and_is_in_the_one_style(kvgen):
    text = kvgen("init").stdout
    assert "policy Local {" in text
    assert kvgen("check", "-", stdin=text).output == ""
    assert kvgen("fmt", "--check", "-", stdin=text).exit_code == 0
    assert text.count("#") > 5, "a word on every line"


def test_a_name_and_a_file(kvgen, tmp_path):
    result = kvgen("init", "Draft", "-o", "draft.kv")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "draft.kv" in result.stderr
    assert "policy Draft {" in (tmp_path / "draft.kv").read_text()
    assert kvgen("check", "draft.kv").exit_code == 0


def test_a_file_that_is_there_is_kept(kvgen, tmp_path):
    (tmp_path / "draft.kv").write_text("mine")
    result = kvgen("init", "-o", "draft.kv")
    assert result.exit_code == 2 and "draft.kv exists" in result.stderr
    assert (tmp_path / "draft.kv").read_text() == "mine"


@pytest.mark.parametrize("name", ["1st", "my-policy", "class", "a" * 65, "x { }", "", "é"])
def test_a_name_that_is_none(kvgen, name):
    result = kvgen("init", name)
    assert result.exit_code == 2 and "cannot name" in result.stderr


def test_a_file_that_could_not_be_compiled(kvgen):
    assert kvgen("init", "-o", "my-policy.kv").exit_code == 2
    assert kvgen("init", "-o", "policy.txt").exit_code == 2


def test_policies_of_a_config(kvgen, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL))
    result = kvgen("init", "--from", "config.json")
    assert result.exit_code == 0
    assert "window   4096" in result.stdout and "model Mistral {" in result.stdout
    assert kvgen("check", "-", stdin=result.stdout).output == ""
    assert kvgen("fmt", "--check", "-", stdin=result.stdout).exit_code == 0
    assert "model Seven {" in kvgen("init", "Seven", "--from", "config.json").stdout
    assert kvgen("init", "--from", ".").stdout == result.stdout, "a model's folder will do"


def test_a_config_that_is_not_understood_is_a_problem(kvgen, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({**MISTRAL, "use_bidirectional_attention": True})
    )
    result = kvgen("init", "--from", "config.json", "-o", "m.kv")
    assert result.exit_code == 1
    assert "use_bidirectional_attention" in result.stderr
    assert not (tmp_path / "m.kv").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "\x00", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_a_file_error(kvgen, tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    result = kvgen("init", "--from", "config.json")
    assert result.exit_code == 2 and "config.json" in result.stderr


def test_a_config_that_is_not_there(kvgen):
    assert kvgen("init", "--from", "nosuch.json").exit_code == 2
