"""Text to syntax in one pass, whatever the text holds.

Lark's LALR tables decide what may come next. A token they do not allow is reported once; then the clause it stands in is
given up (the grammar's BROKEN takes its place) and the tokens up to the next border are skipped: the next clause, brace
or declaration. Nothing is read twice, so the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvgen.diagnostics import Diagnostic, Problems
from kvgen.grammar import Grammar, Token, grammar
from kvgen.machine import DECLARATIONS, Machine
from kvgen.mistakes import Mistakes
from kvgen.skip import Part, Skip
from kvgen.source import SourceFile
from kvgen.syntax import File, Word
from kvgen.tree import build
from kvgen.words import Words, words

_NUMBERLIKE = re.compile(r"[+-]?\.?[0-9]")
_FOREIGN_COMMENTS = ("//", "/*", "--", ";;", "%")


def parse(source: SourceFile) -> tuple[File, tuple[Diagnostic, ...]]:
    """The file's syntax, and what of it could not be read."""
    problems = Problems(source)
    return _Parser(source, grammar(), words(), problems).run(), tuple(problems.found)


@dataclass(frozen=True, slots=True)
class Due:
    """What may follow a text: token types; the declaration and clause that it ends in, "" for none.

    `parent`: the name of another policy is due.
    """

    allowed: frozenset[str]
    kind: str
    clause: str
    parent: bool


def due_behind(text: str) -> Due:
    """For completion: what the grammar would take behind the beginning of a file."""
    source = SourceFile.of(text, "")
    parser = _Parser(source, grammar(), words(), Problems(source))
    last = ""
    for token in parser.significant():
        parser.take(token)
        last = token.type
    at = parser.at
    clause = at.clause.text if at.clause is not None else ""
    return Due(frozenset(at.allowed), at.kind, clause, last == "FROM" and not clause)


class _Parser:
    """One run over one file."""

    def __init__(self, source: SourceFile, grammar: Grammar, words: Words, out: Problems) -> None:
        self.source, self.grammar, self.words = source, grammar, words
        self.at = Machine(grammar)
        self.say = Mistakes(words, self.at, out)
        self.skip = Skip(words, self.at)
        self.comments: list[Word] = []

    def run(self) -> File:
        for token in self.significant():
            self.take(token)
        end = len(self.source.text)
        last = Token("$END", "", end, end, True)
        self.finish(last)
        return build(self.at.end(last), tuple(self.comments))

    def significant(self) -> Iterator[Token]:
        for token in self.grammar.tokens(self.source.text):
            if token.type == "COMMENT":
                self.comments.append(Word(token.text.rstrip(), token.span))
            else:
                yield token

    def take(self, token: Token) -> None:
        """Every token comes by here, some twice: once more after something missing was put in before it."""
        left_out = self.skip.part
        if self.skip.takes(token):
            return
        allowed = self.at.allowed
        if left_out is Part.HEAD and token.type == "LBRACE":
            self.open_body(token)
        elif token.type in allowed:
            self.at.feed(token)
        elif "NAME" in allowed and token.type in self.grammar.words:
            self.at.feed(token._replace(type="NAME"))
        else:
            self.mistake(token)

    # -- Mistakes, by where they stand

    def mistake(self, token: Token) -> None:
        if token.type == "SYMBOL":
            self.symbol(token)
        elif self.unreadable_value(token):
            return
        elif self.at.opening is not None:
            self.in_body(token, self.at.opening)
        elif self.at.head is not None:
            self.in_head(token)
        else:
            self.at_top(token)

    def symbol(self, token: Token) -> None:
        """A sign that means nothing is left out, and all goes on as if it were not there."""
        if token.text.startswith(_FOREIGN_COMMENTS):
            self.say.foreign_comment(token)
            self.skip.begin(Part.LINE)
        else:
            self.say.symbol(token)

    def unreadable_value(self, token: Token) -> bool:
        """A number or name that is none where one is due: reported, and read as an unknown one."""
        allowed = self.at.allowed
        if token.type not in ("JUNK", "DECIMAL", "INTEGER"):
            return False
        if "INTEGER" in allowed and _NUMBERLIKE.match(token.text):
            self.say.number(token, "DECIMAL" in allowed)
            self.at.insert("INTEGER", token)
            return True
        if "NAME" in allowed:
            self.say.name(token)
            self.at.insert("NAME", token)
            return True
        return False

    # -- In a body

    def in_body(self, token: Token, opening: Token) -> None:
        kind, clause = token.type, self.at.clause
        if kind in DECLARATIONS:
            self.not_closed(token, opening)
            self.take(token)
        elif (
            not self.at.complete and clause and (kind in self.words.any_clause or kind == "RBRACE")
        ):
            self.unfinished(clause, token)
            self.take(token)
        elif kind in self.words.any_clause:
            self.say.other_kind(token)
            self.at.give_up(token, "")
            self.skip.begin(Part.CLAUSE)
        elif kind == "NAME" or kind in self.grammar.words:
            self.word(token, clause)
        else:
            self.say.unexpected(token)
            self.skip_clause(token)

    def not_closed(self, found: Token, opening: Token) -> None:
        """A new declaration begins, or the file ends, inside a body."""
        if not self.at.complete and self.at.clause:
            self.unfinished(self.at.clause, found)
        self.say.not_closed(opening, found)
        self.at.insert("RBRACE", found)

    def unfinished(self, clause: Token, found: Token) -> None:
        """The clause in hand stops short: `window` and nothing."""
        self.say.unfinished(clause, found)
        self.at.give_up(found, clause.text)

    def word(self, token: Token, clause: Token | None) -> None:
        """A word where it means nothing: a misspelt option or clause, or one too many."""
        whole, option = self.at.complete, self.words.option(self.at.allowed, token.text)
        near = self.words.clause(self.at.kind, token.text) if whole else None
        begins = whole and (token.fresh or clause is None or near is not None)
        if option and clause and not (begins and near and near[0] < option[0]):
            self.say.misspelt_option(clause, token, option[1])
            self.at.insert(self.words.types[option[1]], token, option[1])
        elif begins or clause is None:
            self.unknown_clause(token, near[1] if near else None)
        elif not whole and token.fresh:
            self.unfinished(clause, token)
            self.take(token)
        else:
            self.say.unknown_word(clause, token)
            self.skip_clause(token)

    def unknown_clause(self, token: Token, near: str | None) -> None:
        """A clause near to a known one is read as that."""
        self.say.unknown_clause(token, near)
        if near:
            self.at.insert(self.words.types[near], token, near)
            self.say.guessed = self.at.clause
        else:
            self.at.give_up(token, "")
            self.skip.begin(Part.CLAUSE)

    def skip_clause(self, token: Token) -> None:
        """Skip to the next border; the clause in hand stands if it was whole."""
        if not self.at.complete and self.at.clause:
            self.at.give_up(token, self.at.clause.text)
        self.skip.begin(Part.CLAUSE)

    # -- In a head

    def in_head(self, token: Token) -> None:
        if "NAME" in self.at.allowed:
            self.say.no_name(token)
            self.at.insert("NAME", token)
            if token.type in ("LBRACE", "RBRACE"):
                self.take(token)
        elif "FROM" in self.at.allowed and self.words.is_from(token.text):
            self.say.misspelt_from(token)
            self.at.insert("FROM", token, "from")
        else:
            self.no_brace(token)

    def no_brace(self, token: Token) -> None:
        """Skip to the brace if there is one, else put it in."""
        self.say.no_brace(token)
        if token.type == "RBRACE" or token.type in (*DECLARATIONS, *self.words.any_clause):
            self.open_body(token)
            self.take(token)
        else:
            self.say.guessed = self.at.head
            self.skip.begin(Part.HEAD)

    def open_body(self, token: Token) -> None:
        """And note that the head was not read: what seems missing may have been in it."""
        self.at.insert("LBRACE", token)
        self.at.insert("BROKEN", token, "from")
        self.say.guessed = None
        if token.type in (*DECLARATIONS, "$END"):
            self.at.insert("RBRACE", token)

    # -- Outside of declarations

    def at_top(self, token: Token) -> None:
        declaration = self.words.declaration(token.text)
        if "INTEGER" in self.at.allowed:
            self.no_version(token)
        elif token.type == "RBRACE":
            self.say.closes_nothing(token)
        elif token.type == "KVGEN":
            self.say.late_version(token)
            self.skip.begin(Part.TOP)
        elif declaration:
            self.say.misspelt_declaration(token, declaration)
            self.at.insert(self.words.types[declaration], token, declaration)
        else:
            self.stray(token)
            self.skip.begin(Part.TOP)

    def no_version(self, token: Token) -> None:
        self.say.no_version(token)
        self.at.insert("INTEGER", token)
        if token.type in DECLARATIONS:
            self.take(token)

    def stray(self, token: Token) -> None:
        if token.type in self.words.any_clause:
            of_policy = token.type in self.grammar.clauses["policy"]
            self.say.stray_clause(token, "policy" if of_policy else "model")
        else:
            self.say.no_declaration(token)

    # -- The end

    def finish(self, last: Token) -> None:
        """Report and close whatever the end of the text leaves open."""
        if self.at.opening is not None:
            self.not_closed(last, self.at.opening)
        elif self.at.head is not None:
            self.say.ends_in_head(self.at.head)
            for kind in ("NAME",) if "NAME" in self.at.allowed else ():
                self.at.insert(kind, last)
            self.open_body(last)
        elif "INTEGER" in self.at.allowed:
            self.no_version(last)
