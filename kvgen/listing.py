"""What there is: the tables of `kvgen list`, and the pages of `kvgen explain`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import resources

from kvgen.errors import FileProblem

Row = tuple[str, str]


def table(topic: str) -> str:
    rows = list(_TOPICS[topic]())
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {text}\n" for name, text in rows)


def topics() -> tuple[str, ...]:
    return tuple(_TOPICS)


def explained() -> tuple[str, ...]:
    """All that `page` knows, in the order of `kvgen list`."""
    return tuple(name for name, _ in (*_codes(), *_clauses()))


def page(what: str) -> str:
    """The page of a code or clause. Raises FileProblem for another word, naming the nearest one."""
    by_lower = {name.lower(): name for name in explained()}
    name = by_lower.get(what.lower())
    if name is None:
        raise FileProblem(_unknown(what))
    return (resources.files("kvgen") / "explain" / f"{name}.md").read_text("utf-8")


def _unknown(what: str) -> str:
    from kvgen.nearest import Nearest

    near = None if re.fullmatch(r"[kK][vV]\d+", what) else Nearest(explained(), 2).of(what)
    hint = f"; the nearest is {near}" if near else ""
    return f"no page for `{what}`{hint} (`kvgen list codes` and `kvgen list clauses` name all)"


def _clauses() -> Iterable[Row]:
    from kvgen.clauses import ALL

    return ((kind.keyword, f"{kind.meaning}. Default: {kind.default}") for kind in ALL)


def _codes() -> Iterable[Row]:
    from kvgen.diagnostics import CODES

    return CODES.items()


def _backends() -> Iterable[Row]:
    from kvgen.backends import BACKENDS

    return ((name, backend.does) for name, backend in BACKENDS.items())


def _kernels() -> Iterable[Row]:
    from kvgen.kernels import KERNELS

    return ((f"{one.backend} {one.name}", one.does) for one in KERNELS)


_TOPICS: dict[str, Callable[[], Iterable[Row]]] = {
    "clauses": _clauses,
    "kernels": _kernels,
    "backends": _backends,
    "codes": _codes,
}
