"""`kvgen fmt`: one style, problems reported, only what changed is written."""

import pytest

from tests.cli.conftest import BAD, GOOD

UGLY = "kvgen 1\npolicy Local { heads query 8 kv 4   dim 64\n window 16 storage ring slack 3 }"


def test_a_file_is_rewritten_once(kvgen, tmp_path):
    path = tmp_path / "a.kv"
    path.write_text(UGLY)
    result = kvgen("fmt", "a.kv")
    assert (result.exit_code, result.stderr) == (0, "a.kv: reformatted\n")
    assert path.read_text() == GOOD
    stamp = path.stat().st_mtime_ns
    assert kvgen("fmt", "a.kv").output == ""
    assert path.stat().st_mtime_ns == stamp


def test_check_and_diff_write_nothing(kvgen, tmp_path):
    path = tmp_path / "a.kv"
    path.write_text(UGLY)
    result = kvgen("fmt", "--check", "a.kv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a.kv: would be reformatted" in result.stderr
    result = kvgen("fmt", "--diff", "a.kv")
    assert result.exit_code == 1
    assert result.stdout.startswith("--- a/a.kv\n+++ b/a.kv\n")
    assert "+    window   16\n" in result.stdout
    assert path.read_text() == UGLY
    path.write_text(GOOD)
    assert kvgen("fmt", "--check", "--diff", "a.kv").exit_code == 0


def test_standard_input_is_printed(kvgen):
    result = kvgen("fmt", "-", stdin=UGLY)
    assert (result.exit_code, result.stdout) == (0, GOOD)
    assert kvgen("fmt", "-", stdin=GOOD).stdout == GOOD
    assert kvgen("fmt", "--check", "-", stdin=GOOD).stdout == ""


def test_a_file_that_cannot_be_read_is_left_and_the_others_are_formatted(kvgen, tmp_path):
    (tmp_path / "a.kv").write_text(UGLY.replace("window", "windw"))
    (tmp_path / "b.kv").write_text(UGLY)
    result = kvgen("fmt", ".")
    assert result.exit_code == 1
    assert "KV101" in result.stderr
    assert (tmp_path / "a.kv").read_text() == UGLY.replace("window", "windw")
    assert (tmp_path / "b.kv").read_text() == GOOD


def test_what_is_written_well_but_means_nothing_is_formatted(kvgen):
    assert kvgen("fmt", "-", stdin=BAD.replace("    ", " ")).stdout == BAD


@pytest.mark.parametrize("text", ["\ufeff" + GOOD, GOOD.replace("\n", "\r\n")])
def test_line_ends_and_bom_become_the_one_style(kvgen, tmp_path, text):
    path = tmp_path / "a.kv"
    path.write_bytes(text.encode())
    assert kvgen("fmt", "--check", "a.kv").exit_code == 1
    assert kvgen("fmt", "a.kv").exit_code == 0
    assert path.read_bytes() == GOOD.encode()


def test_bytes_that_are_not_utf8_are_left(kvgen, tmp_path):
    (tmp_path / "a.kv").write_bytes(b"\xff\xfe")
    result = kvgen("fmt", "a.kv")
    assert result.exit_code == 1 and "KV100" in result.stderr
    assert (tmp_path / "a.kv").read_bytes() == b"\xff\xfe"
