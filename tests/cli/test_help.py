"""`explain`, `list`, `doctor`, `completion`, `--help`, and faults of kvgen's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvgen import cli, doctor, kernels, listing, options
from kvgen.backends import BACKENDS
from kvgen.clauses import ALL
from kvgen.diagnostics import CODES
from tests.cli.conftest import GOOD


@pytest.mark.parametrize("what", ["KV203", "kv203", "window", "WINDOW", "sink_logits"])
def test_explain_prints_a_page(kvgen, what):
    result = kvgen("explain", what)
    assert result.exit_code == 0 and len(result.stdout) > 100


@pytest.mark.parametrize(("what", "near"), [("KV20", "KV20"), ("windw", "window"), ("qqqqqq", "")])
def test_explain_of_an_unknown_word_names_the_nearest(kvgen, what, near):
    result = kvgen("explain", what)
    assert result.exit_code == 2
    assert f"no page for `{what}`" in result.stderr and near in result.stderr


def test_every_code_and_clause_has_a_page():
    assert set(listing.explained()) == {*CODES, *(kind.keyword for kind in ALL)}
    assert all(listing.page(what) for what in listing.explained())


def test_the_tables(kvgen):
    assert "window" in kvgen("list", "clauses").stdout
    assert "KV203  slack without a ring\n" in kvgen("list", "codes").stdout
    names = [line.split()[0] for line in kvgen("list", "backends").stdout.splitlines()]
    assert names == list(BACKENDS)
    assert kvgen("list", "kernels").stdout.startswith("torch ")
    assert listing.topics() == options.TOPICS
    assert kvgen("list", "policies").exit_code == 2


def test_every_kernel_has_its_template():
    templates = Path(kernels.__file__).parent / "templates"
    assert all((templates / one.template).is_file() for one in kernels.KERNELS)
    assert {one.backend for one in kernels.KERNELS} == set(BACKENDS)


def test_doctor_names_what_it_looked_at(kvgen):
    result = kvgen("doctor")
    found = {line.split()[1] for line in result.stdout.splitlines()}
    assert {"kvgen", "python", "torch", "triton", "C++", "generated"} <= found


def test_doctor_finds_drift(kvgen, tmp_path):
    (tmp_path / "a.kv").write_text(GOOD)
    assert kvgen("compile", "a.kv").exit_code == 0
    (good,) = doctor.drift(tmp_path / "generated")
    assert good.state is doctor.State.GOOD
    (tmp_path / "a.kv").write_text(GOOD.replace("16", "17"))
    (wrong,) = doctor.drift(tmp_path / "generated")
    assert wrong.state is doctor.State.WRONG and "a.kv changed since" in wrong.text
    with (tmp_path / "generated/a/__init__.py").open("a") as file:
        file.write("# mine\n")
    result = kvgen("doctor")
    assert result.exit_code == 1
    assert "__init__.py was edited by hand" in result.stdout


def test_doctor_without_torch(tmp_path):
    """A machine with kvgen's own three dependencies only."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    done = subprocess.run(
        [sys.executable, "-m", "kvgen", "doctor"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "pip install 'kvgen[torch]'" in done.stdout


def test_a_compiler_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert doctor.compiler().state is doctor.State.WRONG
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert doctor.compiler().state is doctor.State.ABSENT


def test_where_kernels_are_built_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("KVGEN_CACHE", str(tmp_path / "not/yet"))
    assert doctor.built().state is doctor.State.GOOD
    assert str(tmp_path / "not/yet") in doctor.built().text


@pytest.mark.parametrize("shell", cli.SHELLS)
def test_completion(kvgen, shell):
    assert "_KVGEN_COMPLETE" in kvgen("completion", shell).stdout


def test_completion_knows_codes_and_clauses(process):
    words = {
        "COMP_WORDS": "kvgen explain KV20",
        "COMP_CWORD": "2",
        "_KVGEN_COMPLETE": "bash_complete",
    }
    found = process("explain", env={**os.environ, **words}).stdout
    assert "plain,KV203" in found and "window" not in found


def test_help_names_all_commands(kvgen):
    text = kvgen("--help").stdout
    for name in ("compile", "check", "fmt", "explain", "list", "doctor", "init"):
        assert name in text
        assert kvgen(name, "--help").exit_code == 0
    assert kvgen("-h").stdout == text
    assert kvgen("nosuch").exit_code == 2


def test_a_fault_of_our_own_is_status_101_and_an_apology(capsys, monkeypatch):
    def broken(*_):
        raise KeyError("a fault")

    monkeypatch.setattr("kvgen.listing.table", broken)
    monkeypatch.setattr(sys, "argv", ["kvgen", "list", "codes"])
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 101
    said = capsys.readouterr().err
    assert "sorry" in said and "KeyError" in said and "cli.py" in said and "Python 3" in said
    assert "Traceback" not in said and len(said.splitlines()) < 8


def test_a_reader_that_goes_away_is_no_fault(process, tmp_path):
    command = f"{sys.executable} -m kvgen list codes | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("KV100") and done.stderr == ""


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_text_is_utf8_whatever_the_locale(process, tmp_path, locale):
    text = "# größer ≤ 一\n"
    done = process(
        "fmt",
        "-",
        input="kvgen 1\n" + text,
        env={**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    assert (done.returncode, done.stdout) == (0, "kvgen 1\n" + text)


def test_colour_only_on_a_terminal_and_never_with_no_color(monkeypatch):
    from kvgen import console

    class Terminal:
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert console.coloured(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not console.coloured(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not console.coloured(Terminal())


def test_doctor_names_the_extras(monkeypatch):
    text = Path("pyproject.toml").read_text("utf-8")
    for extra, (package, _) in doctor.EXTRAS.items():
        assert f'\n{extra} = ["' in text and package in text
    there = {found.what: found.state for found in doctor.extras()}
    assert there["lsp"] is there["watch"] is doctor.State.GOOD

    def missing(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    gone = {found.what: found for found in doctor.extras()}
    assert gone["lsp"].state is doctor.State.ABSENT
    assert "pip install 'kvgen[lsp]'" in gone["lsp"].text
