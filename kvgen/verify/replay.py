# pyright: basic
"""A failure of a model as a short Python script that shows it, and what the script runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvgen.verify.calls import Call
from kvgen.verify.session import Mismatch
from kvgen.verify.together import as_written


def replay(text: str, name: str, backend: str, rows: int, calls: tuple[Call, ...]) -> None:
    """Do the calls on a model; AssertionError where it does something else than its layers should."""
    rehearsal = as_written(text, name, backend).session(rows)
    try:
        for call in calls:
            rehearsal.do(call)
    except Mismatch as found:
        raise AssertionError(found.wrong.words) from found


def script(failure: Any, name: str) -> str:
    """A failure as a short script that shows it."""
    return "\n".join(_script(failure, name)) + "\n"


def _script(failure: Any, name: str) -> Iterator[str]:
    subject = failure.subject
    kinds = sorted({type(call).__name__ for call in failure.calls})
    yield f'"""{failure.wrong.words}\n\n{name}, {subject.scale}. Written by `kvgen verify`.\n"""\n'
    yield f"from kvgen.verify.calls import {', '.join(kinds)}"
    yield "from kvgen.verify.replay import replay\n"
    yield f'MODEL = """\\\n{subject.text}"""\n'
    yield "CALLS = ("
    yield from (f"    {call!r}," for call in failure.calls)
    yield ")"
    yield f'replay(MODEL, "{subject.name}", "{subject.backend}", {failure.rows}, CALLS)'
