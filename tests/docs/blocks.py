"""The code blocks of a page, and how each kind is tried. A page's blocks run in order, in one folder and one namespace.

The words behind a fence's language say what is not plain:

    kv NAME.kv         is written to that file        kv KV203     has this problem, and no other
    json NAME.json     is written to that file        console fails    each command ends with a status above 0
    python no-run      is read, but not run; so with sh

A `console` block's `$ kvgen` and `$ python` commands run, and what is shown below one is what it prints; `...` stands for any text.
Of an `sh` block the `kvgen` commands run.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvgen import pipeline
from tests.project.test_process import environment

_FENCE = re.compile(r"^(```+)([a-z]+)([^\n`{]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_RUN = {"kvgen": [sys.executable, "-m", "kvgen"], "python": [sys.executable]}


@dataclass(frozen=True, slots=True)
class Block:
    """`line`: of the page, on which the text begins."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int


def blocks_of(page: str) -> tuple[Block, ...]:
    return tuple(
        Block(found[2], tuple(found[3].split()), found[4], page.count("\n", 0, found.start(4)) + 1)
        for found in _FENCE.finditer(page)
    )


@dataclass
class Page:
    """Runs the blocks of a page in `folder`, which must be the working directory and importable."""

    name: str
    folder: Path
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def run(self, page: str) -> None:
        for block in blocks_of(page):
            kind = getattr(self, f"_{block.language}", None)
            if kind is not None:
                kind(block)

    def _where(self, block: Block) -> str:
        return f"{self.name}:{block.line}"

    def _save(self, block: Block, name: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def _kv(self, block: Block) -> None:
        expected = set()
        name = "example.kv"
        for word in block.words:
            if word.startswith("KV"):
                expected.add(word)
            else:
                assert word.endswith(".kv"), (
                    f"{self._where(block)}: `{word}` is no file and no code"
                )
                self._save(block, word)
                name = word
        checked = pipeline.check_text(block.text, Path(name).name)
        assert {one.code for one in checked.diagnostics} == expected, self._where(block)

    def _json(self, block: Block) -> None:
        json.loads(block.text)
        for name in block.words:
            self._save(block, name)

    def _python(self, block: Block) -> None:
        padded = "\n" * (block.line - 1) + block.text  # tracebacks show the page's lines
        code = compile(padded, self.name, "exec", dont_inherit=True)
        if block.words == ("no-run",):
            return
        assert not block.words, f"{self._where(block)}: what is {block.words}?"
        importlib.invalidate_caches()
        exec(code, self.namespace)

    def _console(self, block: Block) -> None:
        assert block.words in ((), ("fails",)), f"{self._where(block)}: what is {block.words}?"
        for command, shown in commands(block.text):
            self._command(command, shown, bool(block.words), self._where(block))

    def _sh(self, block: Block) -> None:
        assert block.words in ((), ("no-run",)), f"{self._where(block)}: what is {block.words}?"
        if block.words:
            return
        for line in block.text.splitlines():
            if line.startswith("kvgen "):
                self._command(line, "", False, self._where(block))

    def _command(self, command: str, shown: str, fails: bool, where: str) -> None:
        program, *arguments = shlex.split(command, comments=True)
        if program not in _RUN:
            return
        done = subprocess.run(
            [*_RUN[program], *arguments],
            cwd=self.folder,
            env=environment(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", TRITON_INTERPRET="0"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        assert (done.returncode > 0) == fails, f"{where}: {command}\n{done.stdout}"
        if shown or not fails:
            assert agrees(shown, done.stdout), f"{where}: {command} prints\n{done.stdout}"


def commands(text: str) -> list[tuple[str, str]]:
    """(command, what is shown below it)."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, shown = found.pop()
            found.append((command, f"{shown}{line}\n"))
    return found


def agrees(shown: str, printed: str) -> bool:
    """Whether that was printed: nothing shown agrees with all, `...` with any text; columns may be wider."""
    if not shown:
        return True
    shown, printed = (re.sub(" +", " ", text) for text in (shown, printed))
    pattern = ".*".join(re.escape(part.strip("\n")) for part in shown.split("..."))
    return re.fullmatch(rf"\s*{pattern}\s*", printed, re.DOTALL) is not None


@contextlib.contextmanager
def fresh_imports():
    """What a page imports of packages that it compiled is gone afterwards."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("generated", "yourproject"):
                del sys.modules[name]
