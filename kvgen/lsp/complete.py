"""What may be written at a place: the parser is asked what it would take next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from kvgen import listing
from kvgen.clauses import BY_KEYWORD
from kvgen.parse import due_behind
from kvgen.pipeline import Checked
from kvgen.source import Span
from kvgen.syntax import Declaration, File
from kvgen.words import words

_PART = re.compile(r"(?<![\w.+-])[A-Za-z]\w*\Z")
_JUNK = re.compile(r"[\w.+-]\Z")


class Sort(Enum):
    OPTION = "option"
    CLAUSE = "clause"
    POLICY = "policy"
    DECLARATION = "declaration"


@dataclass(frozen=True, slots=True)
class Item:
    """`page` is Markdown, "" where there is none."""

    word: str
    sort: Sort
    detail: str
    page: str = ""


def complete(checked: Checked, at: int) -> tuple[Item, ...]:
    """In the order in which to offer them: what continues a clause before new ones."""
    text = checked.source.text[:at]
    part = _PART.search(text)
    text = text[: part.start()] if part else text
    if _JUNK.search(text) or _in_comment(text):
        return ()
    due = due_behind(text)
    here = _declaration_at(checked.syntax, at)
    options = tuple(_options(due.allowed, due.clause))
    if "NAME" in due.allowed and (due.clause == "repeat" or due.parent):
        options += tuple(_policies(checked, here))
    return (
        options + tuple(_clauses(due.allowed, due.kind, here, at)) + tuple(_top(due.allowed, text))
    )


def _in_comment(text: str) -> bool:
    return "#" in re.split(r"[\r\n]", text)[-1]


def _declaration_at(file: File, at: int) -> Declaration | None:
    return next((one for one in file.declarations if one.span.start < at <= one.span.end), None)


def _options(allowed: frozenset[str], clause: str) -> Iterator[Item]:
    """`from` stands in a head and in `share`; the words of a clause in it alone."""
    known = words()
    taken = known.any_clause | {known.types[word] for word in (*known.clauses, "kvgen")}
    page = listing.page(clause) if clause else ""
    detail = " / ".join(known.forms[clause]) if clause else "copies another policy's clauses"
    for word, kind in known.types.items():
        if kind in allowed and kind not in taken:
            yield Item(word, Sort.OPTION, detail, page)


def _policies(checked: Checked, here: Declaration | None) -> Iterator[Item]:
    for one in checked.syntax.declarations:
        if one.kind == "policy" and one is not here and one.name.text:
            yield Item(one.name.text, Sort.POLICY, "policy", source_of(checked, one))


def source_of(checked: Checked, one: Declaration) -> str:
    return f"```kv\n{checked.source.cut(one.span)}\n```"


def _clauses(
    allowed: frozenset[str], kind: str, here: Declaration | None, at: int
) -> Iterator[Item]:
    """Those that the declaration does not have yet; `share` may stand more than once."""
    known = words()
    clauses = here.clauses if here else ()
    # What is being typed may have been read as a misspelt clause.
    written = {one.keyword for one in clauses if not _holds(one.keyword_span, at)} - {"share"}
    for word in known.clauses.get(kind, ()):
        if known.types[word] in allowed and word not in written:
            clause = BY_KEYWORD[word]
            yield Item(word, Sort.CLAUSE, " / ".join(clause.forms), listing.page(word))


def _holds(span: Span, at: int) -> bool:
    return span.start <= at <= span.end


def _top(allowed: frozenset[str], text: str) -> Iterator[Item]:
    known = words()
    if "KVGEN" in allowed and not text.strip():
        yield Item("kvgen 1", Sort.DECLARATION, "the language version: the first line")
    for word in known.clauses:
        if known.types[word] in allowed:
            yield Item(word, Sort.DECLARATION, f"{word} Name {{ ... }}")
