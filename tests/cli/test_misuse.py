"""What a command is not for: status 2, and one line that says what, why and what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import GOOD

FAR = "x" * 300


@pytest.fixture
def files(tmp_path):
    """In the working folder of `kvgen`."""
    (tmp_path / "good.kv").write_text(GOOD)
    (tmp_path / "folder.kv").mkdir()
    (tmp_path / "file").write_text("{")
    (tmp_path / "dangling.kv").symlink_to("nowhere")
    return tmp_path


# (arguments, what is said)
MISUSES = [
    ("check nothere.kv", "nothere.kv: No such file or directory; name a .kv file, a folder of them, or - for"),
    ("check dangling.kv", "dangling.kv: No such file or directory; name a .kv file"),
    (f"check {FAR}.kv", ".kv: File name too long; name a .kv file"),
    ("check file", "file is no policy: a policy file ends in .kv"),
    ("check folder.kv", "there is no .kv file in folder.kv; `kvgen init -o first.kv` writes a first one"),
    ("check ''", '"" is no path: name a file, or `.` for the folder you are in'),
    ("compile good.kv -o file", "file/MANIFEST.json: Not a directory; make it readable, or choose another folder with -o"),
    ("compile good.kv -o dangling.kv", "dangling.kv/good/__init__.py: "),
    ("compile good.kv --backend tpu", "no backend `tpu`: --backend takes torch, cpu, triton"),
    ("compile good.kv --emit code --tests", "--emit only prints: leave out --check, --diff, --prune and --tests"),
    ("audit good.kv --target sm_1", "no target sm_1: there are sm_80,"),
    ("build good.kv --columns 4", "--columns is of Triton kernels: add --target, or leave --columns out"),
    ("build good.kv --out file", "file: File exists; name another folder with --out"),
    ("verify good.kv --seconds nan", "nan is no time to test in; give a number above 0"),
    ("verify good.kv --backend tpu", "no backend `tpu`"),
    ("diff good.kv folder.kv", "diff compares two policy files: name a file, not a folder of several"),
    ("diff - -", "standard input can be OLD or NEW, not both: name a file for one of them"),
    ("draw good.kv -o good.pdf", "good.pdf ends in none of .svg, .html, .txt: name it so, or say with --format what"),
    ("draw good.kv -o file/good.svg", "file is no folder; name another place"),
    ("draw good.kv -o folder.kv --format svg", "folder.kv: Is a directory; make its folder writable, or name another"),
    ("draw good.kv --policy Nope", "no policy `Nope` in good.kv: it declares Local"),
    ("draw good.kv --format html --report nothere", "nothere: No such file or directory; give --report what `kvgen verify`"),
    ("draw good.kv --report file", "--report is shown in the page: add --format html, or leave it out"),
    ("explain KV999", "no page for `KV999` (`kvgen list codes` and `kvgen list clauses` name all)"),
    ("explain windw", "no page for `windw`; the nearest is window"),
    ("init 1x", "`1x` cannot name a policy or model: a letter, then letters"),
    ("init --from file", "file is not JSON: "),
    ("init --from nothere", "nothere: No such file or directory; give a model's config.json, or the folder that holds it"),
    ("init -o good.kv", "good.kv exists; name another file with -o, or remove it first"),
    ("tune good.kv --batch 0", "0 is not in the range"),
    ("chck good.kv", "No such command 'chck'. Did you mean 'check'?"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISUSES, ids=[one[0][:40] for one in MISUSES])
def test_misuse_is_status_2_and_says_what_to_do(kvgen, files, arguments, message):
    words = ["" if word == "''" else word for word in arguments.split()]
    before = sorted(files.rglob("*"))
    result = kvgen(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert sorted(files.rglob("*")) == before, "nothing is left behind"


def test_a_manifest_that_is_not_ours_is_named(kvgen, files):
    kvgen("compile", "good.kv")
    for text, where in (
        ("<<<<<<< ours", "MANIFEST.json:1: "),
        ('{"packages": 3}', "MANIFEST.json: "),
    ):
        Path("generated/MANIFEST.json").write_text(text)
        result = kvgen("compile", "good.kv")
        assert result.exit_code == 2
        assert f"generated/{where}the manifest is not as kvgen wrote it" in result.stderr


def test_a_table_that_breaks_off_says_where_it_is_no_json(kvgen, files):
    Path("good.tune.json").write_text('{"kvgen_tune": 1, "codegen\n')
    result = kvgen("check", "good.kv")
    assert result.exit_code == 0 and "no JSON: Invalid control character\n" in result.stderr


@pytest.mark.parametrize(
    ("redirection", "arguments", "message"),
    [
        ("<&-", "check -", "standard input is closed: give it a policy, or name a file"),
        (">/dev/full", "list codes", "what is printed: No space left on device; send it where there is room"),
    ],
)  # fmt: skip
def test_streams_that_are_not_there(redirection, arguments, message):
    if "full" in redirection and not os.path.exists("/dev/full"):
        redirection = ">&-"
    command = f"{sys.executable} -m kvgen {arguments} {redirection}"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
