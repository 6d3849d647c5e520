"""`kvgen compile --watch`: a real process, files that change under it, Ctrl-C."""

import os
import signal
import subprocess
import sys
from queue import Empty, Queue
from threading import Thread

import pytest

from tests.cli.conftest import BAD, GOOD


class Watch:
    """The command in a folder; `until` waits for a line of its stderr."""

    def __init__(self, folder, *arguments):
        command = [sys.executable, "-m", "kvgen", "compile", "--watch", *arguments]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: Queue[str] = Queue()
        self.reader = Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.put(line.rstrip())

    def until(self, part):
        said = []
        while part not in (said or [""])[-1]:
            try:
                said.append(self.lines.get(timeout=60))
            except Empty:
                raise AssertionError(f"{part!r} was not said, but {said}") from None
        return said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join(30)
        self.process.stdout.close()
        self.process.stderr.close()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/a.kv").write_text(GOOD)
    return tmp_path


def replaced(path, text):
    """Saved as editors do: written beside and renamed."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)


def test_what_changes_is_compiled_and_a_broken_file_breaks_nothing(folder):
    written = folder / "generated/a/local_policy.py"
    source = folder / "policies/a.kv"
    with Watch(folder, "policies") as watch:
        watch.until("watching policies; Ctrl-C ends")
        assert "a.kv:6 window 16" in written.read_text()
        replaced(source, GOOD.replace("16", "17"))
        assert "policy changed" in watch.until("files written")[-1]
        good = written.read_text()
        assert "a.kv:6 window 17" in good
        source.write_text(BAD)
        watch.until("error[KV206]")
        (folder / "policies/b.kv").write_text(GOOD)
        watch.until("b.kv -> ")
        assert (folder / "generated/b/local_policy.py").is_file()
        assert written.read_text() == good, "what was compiled last stays"
        source.write_text(GOOD)
        watch.until("a.kv -> ")
        assert watch.interrupt() == 0


def test_a_tuned_table_that_changes_is_looked_at_too(folder):
    with Watch(folder, "policies") as watch:
        watch.until("watching")
        (folder / "policies/a.tune.json").write_text("not a table")
        watch.until("warning[KV911]")


def test_the_status_says_whether_a_file_has_problems(folder):
    (folder / "policies/bad.kv").write_text(BAD)
    with Watch(folder, "policies") as watch:
        said = watch.until("watching")
        assert any("error[KV206]" in line for line in said)
        assert (folder / "generated/a/local_policy.py").is_file()
        assert watch.interrupt() == 1
    with Watch(folder, "policies/bad.kv", "--format", "concise") as watch:
        watch.until("watching")
        (folder / "policies/bad.kv").unlink()
        watch.until("No such file")
        replaced(folder / "policies/bad.kv", GOOD)
        watch.until("bad.kv -> ")
        assert watch.interrupt() == 0


def test_a_file_that_goes_and_one_of_an_impossible_name(folder):
    (folder / "policies/b.kv").write_text(BAD)
    with Watch(folder, "policies") as watch:
        watch.until("watching")
        (folder / "policies/b.kv").unlink()
        watch.until("b.kv: gone")
        (folder / "policies/my-policy.kv").write_text(GOOD)
        watch.until("cannot name a Python package")
        (folder / "policies/my-policy.kv").unlink()
        (folder / "policies/c.kv").write_text(GOOD)
        watch.until("c.kv -> ")
        assert watch.interrupt() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-"], "standard input does not change"),
        (["policies", "--check"], "leave out --check, --diff and --emit"),
        (["policies", "--diff"], "leave out --check, --diff and --emit"),
        (["policies", "--emit", "ir"], "leave out --check, --diff and --emit"),
        (["nosuch.kv"], "nosuch.kv: No such file or directory"),
        (["policies", "--name", "x"], "--name names standard input"),
        (["policies", "--backend", "cuda"], "cuda"),
        (["policies/a.kv", "twin/A.kv"], "would both be the package"),
        ([], "Missing argument"),
    ],
)
def test_misuse_is_status_2(kvgen, folder, arguments, message):
    (folder / "twin").mkdir()
    (folder / "twin/A.kv").write_text(GOOD)
    result = kvgen("compile", "--watch", *arguments, stdin=GOOD)
    assert result.exit_code == 2
    assert message in result.stderr


def test_without_the_extra_it_says_what_to_install(folder):
    text = "raise ModuleNotFoundError(\"No module named 'watchfiles'\", name='watchfiles')"
    (folder / "watchfiles.py").write_text(text)
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from kvgen.cli import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code, "compile", "--watch", folder / "policies"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "needs watchfiles: pip install 'kvgen[watch]'" in done.stderr
