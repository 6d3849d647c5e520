"""Finds and loads kv.lark, and says what it holds. Lark is imported only when a file is parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kvgen.source import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lark import Lark
    from lark.lexer import TerminalDef

FILE = "kv.lark"
_DECLARATIONS = ("policy", "model")


class Token(NamedTuple):
    """One word, number, sign or comment. `fresh`: the first of its line."""

    type: str
    text: str
    start: int
    end: int
    fresh: bool

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The parser, and the words of the language by their token types.

    `clauses["policy"]` and `clauses["model"]` hold the types that begin a clause there; `words` maps each type to its
    spelling, signs excluded; `scanner` is all terminals in one pattern, `patterns` those that are not words.
    """

    lark: Lark
    scanner: re.Pattern[str]
    patterns: dict[str, str]
    words: dict[str, str]
    types: dict[str, str]
    clauses: dict[str, frozenset[str]]

    def tokens(self, text: str) -> Iterator[Token]:
        """All tokens, comments included, of any text: the last terminals take whatever the others do not.

        Does what Lark's own lexer would, in half the time.
        """
        types, fresh = self.types, True
        for match in self.scanner.finditer(text):
            kind, word = match.lastgroup, match[0]
            if kind == "SPACE":
                fresh = fresh or "\n" in word or "\r" in word
                continue
            assert kind is not None
            yield Token(
                types.get(word, kind) if kind == "NAME" else kind, word, *match.span(), fresh
            )
            fresh = False

    def start(self) -> object:
        """A fresh LALR state of Lark's, for `machine` alone."""
        return cast("Any", self.lark).parse_interactive("", start="file").parser_state


def text() -> str:
    """The grammar: inside an installed package, else beside it in a checkout."""
    inside = resources.files("kvgen").joinpath(FILE)
    if inside.is_file():
        return inside.read_text("utf-8")
    return (Path(__file__).parent.parent / "grammars" / FILE).read_text("utf-8")


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    from lark import Lark

    lark = Lark(
        text(),
        parser="lalr",
        lexer="basic",
        start=["file", "unreadable"],
        keep_all_tokens=True,
        maybe_placeholders=False,
    )
    words = {
        terminal.name: terminal.pattern.value
        for terminal in lark.terminals
        if terminal.pattern.type == "str" and terminal.pattern.value[0].isalpha()
    }
    others = [one for one in lark.terminals if one.name not in words]
    return Grammar(
        lark=lark,
        scanner=_scanner(others),
        patterns={one.name: one.pattern.to_regexp() for one in others},
        words=words,
        types={spelling: name for name, spelling in words.items()},
        clauses={kind: _first(lark, kind) for kind in _DECLARATIONS},
    )


def _scanner(terminals: list[TerminalDef]) -> re.Pattern[str]:
    """The terminals that are not words, by priority; each word is found as a NAME first."""
    ranked = sorted(terminals, key=lambda terminal: -terminal.priority)
    return re.compile("|".join(f"(?P<{one.name}>{one.pattern.to_regexp()})" for one in ranked))


def _first(lark: Lark, kind: str) -> frozenset[str]:
    """The token types that begin the clauses of a kind of declaration: the first of each rule it is made of."""
    rules = [rule for rule in lark.rules if rule.origin.name == f"_{kind}_clause"]
    names = {str(rule.expansion[0].name) for rule in rules}
    bodies = [rule for rule in lark.rules if rule.origin.name in names]
    return frozenset(str(rule.expansion[0].name) for rule in bodies)
