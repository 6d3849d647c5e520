"""What is left out of a text after a mistake, and the border at which reading goes on."""

from __future__ import annotations

from enum import Enum, auto

from kvgen.grammar import Token
from kvgen.machine import DECLARATIONS, Machine
from kvgen.words import Words


class Part(Enum):
    """What is being left out."""

    NOTHING = auto()
    LINE = auto()
    CLAUSE = auto()
    HEAD = auto()  # of a declaration, up to its brace
    TOP = auto()  # what stands outside of declarations


class Skip:
    """`part`: what is being left out now; `last`: the type of the token that was left out last."""

    def __init__(self, words: Words, machine: Machine) -> None:
        self.words, self.at = words, machine
        self.part, self.last = Part.NOTHING, ""

    def begin(self, part: Part) -> None:
        self.part, self.last = part, ""

    def takes(self, token: Token) -> bool:
        """Whether a token is left out; the first that is not ends it."""
        if self.part is Part.NOTHING:
            return False
        if self._ends_at(token):
            self.part = Part.NOTHING
            return False
        self.last = token.type
        return True

    def _ends_at(self, token: Token) -> bool:
        kind, text = token.type, token.text
        if self.part is Part.LINE:
            return token.fresh
        if kind in DECLARATIONS:
            return True
        if self.part is Part.TOP:
            known = token.fresh and kind == "NAME" and self.words.declaration(text)
            return bool(known)
        if kind == "RBRACE" or kind in self.words.any_clause:
            return True
        if self.part is Part.HEAD:
            return kind == "LBRACE"
        return kind == "NAME" and self._begins_clause(token)

    def _begins_clause(self, token: Token) -> bool:
        """Whether an unknown word looks like the beginning of another clause."""
        known = self.words.clause(self.at.kind, token.text) is not None
        if self.at.clause is not None and self.at.clause.type == "REPEAT":  # names may go on
            return token.fresh and known
        # Behind a number no clause has a word of its own.
        return known or token.fresh or self.last in ("INTEGER", "DECIMAL")
