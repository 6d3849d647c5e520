"""The first lines of an emitted file: what it was made from, and whether it is still as kvgen wrote it.

    # Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
    # kvgen: gemma3.kv source 0b7d1c2e3f40 body 9a8b7c6d5e4f codegen 1

`source` is the hash of the policy as `kvgen fmt` prints it, `body` that of all below the second line. Neither a clock nor
a folder nor kvgen's version is in it, so the same policy gives the same bytes everywhere.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass

CODEGEN = 1  # raise it when the templates change what an unchanged policy compiles to

_MARK = re.compile(
    r"^(?:#|//) kvgen: (\S+) source ([0-9a-f]{12}) body ([0-9a-f]{12}) codegen (\d{1,9})$"
)


@dataclass(frozen=True, slots=True)
class Header:
    source_name: str
    source: str
    body: str
    codegen: int


def digest(text: str) -> str:
    """12 hex digits: short enough to read, long enough to tell two versions of one file apart."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


# One text, a header in every file of its package.
_source_digest = functools.lru_cache(maxsize=4)(digest)


def stamp(body: str, source_name: str, formatted: str, comment: str = "#") -> str:
    """The file whose text is `body`, under its header. `comment` is what begins a comment in its language."""
    return (
        f"{comment} Written by kvgen from {source_name} and yours to keep:"
        f" kvgen claims no right to it. Edit {source_name}.\n"
        f"{comment} kvgen: {source_name} source {_source_digest(formatted)} body {digest(body)}"
        f" codegen {CODEGEN}\n{body}"
    )


def read(text: str) -> Header | None:
    """The header of a file, None if kvgen did not write it."""
    found = _MARK.match(_lines(text)[1])
    if found is None:
        return None
    name, source, body, codegen = found.groups()
    return Header(name, source, body, int(codegen))


def intact(text: str) -> bool:
    """Whether the file is as kvgen wrote it."""
    header = read(text)
    return header is not None and header.body == digest(_lines(text)[2])


def _lines(text: str) -> list[str]:
    """The two lines of the header and all that follows them; empty where there is nothing."""
    return [*text.split("\n", 2), "", ""][:3]
