"""Finds and loads kv.lark, and says what it holds. Lark is imported only when a file is parsed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lark import Lark, Token
    from lark.parsers.lalr_parser_state import ParserState

FILE = "kv.lark"
_DECLARATIONS = {"policy", "model"}


@dataclass(frozen=True, slots=True)
class Grammar:
    """The parser, and the words of the language by their token types.

    `clauses["policy"]` and `clauses["model"]` hold the types that begin a clause there; `words` maps each type to its
    spelling, signs excluded.
    """

    lark: Lark
    words: dict[str, str]
    clauses: dict[str, frozenset[str]]

    def tokens(self, text: str) -> Iterator[Token]:
        """All tokens, comments and spaces included."""
        return self.lark.lex(text, dont_ignore=True)

    def start(self) -> ParserState[int]:
        return self.lark.parse_interactive("", start="file").parser_state


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
    return Grammar(lark, words, {kind: _first(lark, kind) for kind in _DECLARATIONS})


def _first(lark: Lark, kind: str) -> frozenset[str]:
    """The token types that begin the clauses of a kind of declaration: the first of each rule it is made of."""
    rules = [rule for rule in lark.rules if rule.origin.name == f"_{kind}_clause"]
    names = {str(rule.expansion[0].name) for rule in rules}
    bodies = [rule for rule in lark.rules if rule.origin.name in names]
    return frozenset(str(rule.expansion[0].name) for rule in bodies)
