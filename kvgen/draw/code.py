"""Emitted files as HTML, with their comments, strings and keywords told apart by Python's own tokenizer."""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Iterator
from html import escape

_CLASSES = {tokenize.COMMENT: "c", tokenize.STRING: "s"}


def marked(path: str, text: str) -> str:
    """The text of a file for a `pre` element."""
    return "".join(_python(text)) if path.endswith(".py") else escape(text)


def _python(text: str) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    done = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        look = _CLASSES.get(token.type, "k" if keyword.iskeyword(token.string) else "")
        if not look:
            continue
        first = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        yield f'{escape(text[done:first])}<span class="{look}">{escape(text[first:end])}</span>'
        done = end
    yield escape(text[done:])
