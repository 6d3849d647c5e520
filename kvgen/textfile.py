"""A file of text, read and written whole. Nothing else in kvgen writes."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from kvgen.errors import FileProblem

_NO_NEWLINE = "\n\\ No newline at end of file\n"


def read(path: Path) -> str | None:
    """The text of a file with `\\n` line ends, as version control may have changed them; None if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileProblem.of(error, "make it readable, or choose another folder with -o") from error


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write beside and rename. A file that was there keeps its mode, and a link to one stays a link."""
    there = os.path.lexists(path)
    target = os.path.realpath(path) if there else os.fspath(path)
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name}.{os.getpid()}.part")
    try:
        if not there:
            os.makedirs(folder or ".", exist_ok=True)
        with open(beside, "wb") as file:
            file.write(text.encode("utf-8"))
        if there and os.path.exists(target):
            os.chmod(beside, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(beside, target)
    except (FileExistsError, NotADirectoryError) as error:
        raise FileProblem(f"{folder} is no folder; name another place") from error
    except OSError as error:
        _remove(beside)
        remedy = "make its folder writable, or name another place"
        raise FileProblem.of(error, remedy, place=target) from error


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def unified(path: str, before: str, after: str) -> str:
    """How a text changes, as version control shows it."""
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)
