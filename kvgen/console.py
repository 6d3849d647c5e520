"""How the command line speaks: which stream, in colour or not, and that all of it is UTF-8."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from kvgen import __version__
from kvgen.errors import FileProblem

if TYPE_CHECKING:
    from kvgen.work import Outcome

FAULT = 101
_HERE = Path(__file__).parent


def say(text: str) -> None:
    click.echo(text, err=True)


def finish(outcome: Outcome, style: str = "full") -> NoReturn:
    """Print an outcome and end with its status."""
    _print(outcome, style)
    sys.exit(outcome.status)


def follow(outcomes: Iterable[Outcome], style: str) -> NoReturn:
    """Print outcomes as they come, until Ctrl-C, and end with the status of the last one."""
    status = 0
    try:
        for outcome in outcomes:
            status = outcome.status
            _print(outcome, style)
    except KeyboardInterrupt:
        say("")
    sys.exit(status)


def _print(outcome: Outcome, style: str) -> None:
    """Raises FileProblem where a stream takes no more."""
    try:
        _print_all(outcome, style)
    except BrokenPipeError:  # whoever reads has read enough; click ends it quietly
        raise
    except OSError as error:
        remedy = "send it where there is room"
        raise FileProblem.of(error, remedy, place="what is printed") from error


def _print_all(outcome: Outcome, style: str) -> None:
    if outcome.diagnostics or style in ("json", "github"):
        _report(outcome, style)
    for line in outcome.lines:
        say(line)
    click.echo(outcome.out, nl=False)


def _report(outcome: Outcome, style: str) -> None:
    from kvgen.report import render

    to_stdout = style in ("json", "github")
    stream = sys.stdout if to_stdout else sys.stderr
    click.echo(render(outcome.diagnostics, style, coloured(stream)), err=not to_stdout, nl=False)


def coloured(stream: TextIO) -> bool:
    """On a terminal, unless https://no-color.org asks otherwise; click does not look."""
    if os.environ.get("NO_COLOR"):
        return False
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def use_utf8() -> None:
    """What kvgen prints is UTF-8 whatever the locale, as the files are that it writes."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(encoding="utf-8", errors="backslashreplace")


def apologise(fault: Exception) -> None:
    """A fault of kvgen's own: what happened where, and what a report needs."""
    frames = traceback.extract_tb(fault.__traceback__)
    ours = [frame for frame in frames if _HERE in Path(frame.filename).parents][-3:]
    say(f"kvgen: sorry, this is a fault in kvgen: {type(fault).__name__}: {fault}")
    for frame in ours:
        say(f"  {Path(frame.filename).relative_to(_HERE)}:{frame.lineno} in {frame.name}")
    say(
        "No policy file should make this happen. Please report it: these lines, the command, the .kv"
        f" file, and kvgen {__version__}, Python {platform.python_version()}, {platform.system()}."
    )
