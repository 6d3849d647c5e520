"""Parts of pages that are kept elsewhere: `% from_code: clauses` in a page becomes the clauses' pages, and so on.

One source and no copies: what `kvgen explain` prints is what the site shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kvgen import listing
from kvgen.clauses import MODEL, POLICY
from kvgen.diagnostics import CODES, FAMILIES
from kvgen.highlight.pygments import KvLexer


def clauses() -> str:
    parts = []
    for title, kinds in (("Of a policy", POLICY), ("Of a model", MODEL)):
        rows = [f"| {_forms(kind.forms)} | {kind.meaning} | {kind.default} |" for kind in kinds]
        parts += [f"## {title}", "", "| clause | meaning | default |", "|---|---|---|", *rows, ""]
        parts += [_lowered(listing.page(kind.keyword), 2) for kind in kinds]
    return "\n".join(parts)


def codes() -> str:
    parts = []
    for family, title in FAMILIES.items():
        parts.append(f"## {title}\n")
        parts += [_lowered(listing.page(code), 2) for code in CODES if code.startswith(family)]
    return "\n".join(parts)


def kernels() -> str:
    return f"```text\n{listing.table('kernels')}```\n"


def backends() -> str:
    return f"```text\n{listing.table('backends')}```\n"


PARTS: dict[str, Callable[[], str]] = {
    "clauses": clauses,
    "codes": codes,
    "kernels": kernels,
    "backends": backends,
}


def _forms(forms: tuple[str, ...]) -> str:
    return "<br>".join(f"`{form}`" for form in forms)


def _lowered(page: str, levels: int) -> str:
    """A page, whose one heading is its first line, as a section of another."""
    return "#" * levels + page


def insert(_app: Any, page: str, source: list[str]) -> None:
    if page == "decisions/README":  # for the repository a plain page, for the site a chapter
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"
    source[0] = re.sub(
        r"^% from_code: (\w+)$", lambda found: PARTS[found[1]](), source[0], flags=re.MULTILINE
    )


def setup(app: Any) -> dict[str, Any]:
    app.add_lexer("kv", KvLexer)
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "version": "1"}
