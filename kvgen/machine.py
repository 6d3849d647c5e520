"""Lark's LALR machine, fed one token at a time, and where in a file it stands: the only user of Lark's parser state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kvgen.grammar import Grammar, Token

DECLARATIONS = ("POLICY", "MODEL")


class Machine:
    """`kind` and `head`: of the declaration in hand, "" and None outside. `opening`: its brace, once in the body.
    `clause`: the keyword of the clause in hand, which may be whole already. `last`: the token that was fed last."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.kind = ""
        self.head: Token | None = None
        self.opening: Token | None = None
        self.clause: Token | None = None
        self.last: Token | None = None
        self._state = cast("Any", grammar.start())
        self._table: Mapping[int, Mapping[str, object]] = self._state.parse_conf.parse_table.states
        self._depth = 0  # of the stack when the clause in hand began

    @property
    def allowed(self) -> Mapping[str, object]:
        """The token types that may come next are its keys (and the rules that may end here)."""
        return self._table[self._state.position]

    @property
    def complete(self) -> bool:
        """In a body: whether the clause in hand could end here."""
        return "RBRACE" in self.allowed

    def feed(self, token: Token) -> None:
        """Take an allowed token."""
        self._state.feed_token(token)
        kind, self.last = token.type, token
        if kind in DECLARATIONS:
            self.kind, self.head = self.grammar.words[kind], token
        elif kind == "LBRACE":
            self.opening, self.clause = token, None
        elif kind == "RBRACE":
            self.kind, self.head, self.opening, self.clause = "", None, None, None
        elif self.kind and kind in self.grammar.clauses[self.kind]:
            self.clause = token
            self._depth = len(self._state.state_stack) - 1

    def insert(self, kind: str, at: Token, text: str = "") -> None:
        """Feed a token that is not in the text, or stands for one that could not be read."""
        self.feed(Token(kind, text, at.start, at.end, at.fresh))

    def give_up(self, at: Token, keyword: str) -> None:
        """Put BROKEN in the place of the clause in hand, or, if that is whole, of one that begins at `at`."""
        if not self.complete and self.clause is not None:
            at = self.clause
            del self._state.state_stack[self._depth :]
            del self._state.value_stack[self._depth - 1 :]
        else:
            self.clause = None
        self.insert("BROKEN", at, keyword)

    def end(self, token: Token) -> object:
        """The tree of the whole file."""
        return self._state.feed_token(token, is_end=True)
