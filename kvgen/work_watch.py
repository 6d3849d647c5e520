"""`kvgen compile --watch`: what changes is compiled again, until it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvgen import inputs, stages
from kvgen.errors import FileProblem
from kvgen.inputs import STDIN, SUFFIX, Input, Inputs
from kvgen.tuned import SUFFIX as TABLE_SUFFIX
from kvgen.tuned import TableFile
from kvgen.work import CLEAN, PROBLEMS, Compile, Outcome, compile

_LOOK_ANYWAY_MS = 2000  # some file systems tell nothing
_GATHER_MS = 200  # saving is several events
_RENAMED_S = 0.1  # an editor that saves by renaming leaves a moment without the file

_Seen = tuple[bytes, TableFile | None]


def watch(paths: tuple[str, ...], name: str | None, asked: Compile) -> Iterator[Outcome]:
    """All files, then each whose text has changed. A status of 1 says that some file has problems now."""
    _require_sense(paths, asked)
    try:
        from watchfiles import watch as wait
    except ModuleNotFoundError as missing:
        text = "compile --watch needs watchfiles: pip install 'kvgen[watch]'"
        raise FileProblem(text) from missing
    first = inputs.collect(paths, name)
    state = _State(paths, asked)
    yield from state.compiled(first)
    yield state.outcome(lines=(f"watching {', '.join(paths)}; Ctrl-C ends",))
    events = wait(
        *_folders(paths),
        watch_filter=lambda _, path: path.endswith((SUFFIX, TABLE_SUFFIX)),
        debounce=_GATHER_MS,
        rust_timeout=_LOOK_ANYWAY_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
        recursive=False,
    )
    for _ in events:
        yield from state.look()


def _require_sense(paths: Iterable[str], asked: Compile) -> None:
    if asked.dry or asked.stage is not None:
        raise FileProblem("--watch writes packages: leave out --check, --diff and --emit")
    if STDIN in paths:
        raise FileProblem("standard input does not change: name files or folders with --watch")
    stages.chosen_backends(asked.backends)  # refused now, and not again for each file


def _folders(paths: Iterable[str]) -> set[Path]:
    """A file is watched by its folder: saving may put another file in its place."""
    return {path if path.is_dir() else path.parent for path in map(Path, paths)}


@dataclass(slots=True)
class _State:
    """`seen`: what was last compiled of each file, its bytes and its tuned table; `broken`: the files that have problems; `said`: of the paths, once."""

    paths: tuple[str, ...]
    asked: Compile
    seen: Mapping[Path, _Seen] = field(default_factory=dict[Path, _Seen])
    broken: set[Path] = field(default_factory=set[Path])
    said: str = ""

    def look(self) -> Iterator[Outcome]:
        try:
            found = self._collect()
        except FileProblem as problem:
            if str(problem) != self.said:
                self.said = str(problem)
                yield self.outcome(lines=(f"kvgen: {problem}",))
            return
        self.said = ""
        yield from self.compiled(found)

    def _collect(self) -> Inputs:
        try:
            return inputs.collect(self.paths, None)
        except FileProblem:
            time.sleep(_RENAMED_S)
            return inputs.collect(self.paths, None)

    def compiled(self, found: Inputs) -> Iterator[Outcome]:
        """Each file by itself: a broken one keeps its package as it was, and the others theirs up to date."""
        now = {path: (file.data, file.table) for path, file in _by_path(found)}
        before, self.seen = self.seen, now
        for path in before.keys() - self.seen.keys():
            self.broken.discard(path)
            yield self.outcome(
                lines=(f"{path}: gone; `kvgen compile --prune` removes its package",)
            )
        for path, file in _by_path(found):
            if before.get(path) != now[path]:
                yield self._compiled(path, file)

    def _compiled(self, path: Path, file: Input) -> Outcome:
        try:
            done = compile(Inputs((file,), whole=False), self.asked)
        except FileProblem as problem:
            done = Outcome(PROBLEMS, lines=(f"kvgen: {problem}",))
        (self.broken.discard if done.status == CLEAN else self.broken.add)(path)
        return replace(done, status=self._status())

    def outcome(self, lines: tuple[str, ...]) -> Outcome:
        return Outcome(self._status(), lines=lines)

    def _status(self) -> int:
        return PROBLEMS if self.broken or self.said else CLEAN


def _by_path(found: Inputs) -> Iterator[tuple[Path, Input]]:
    return ((file.path, file) for file in found.files if file.path is not None)
