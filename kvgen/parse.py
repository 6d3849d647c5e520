"""Text to syntax in one pass, whatever the text holds.

Lark's LALR tables decide what may come next. A token they do not allow is reported once; then the clause it stands in is
given up (the grammar's BROKEN takes its place) and the tokens up to the next border are skipped: the next clause, brace
or declaration. Nothing is read twice, so the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvgen.diagnostics import Diagnostic, Fix, Label, Problems, shown
from kvgen.grammar import Grammar, Token, grammar
from kvgen.source import SourceFile, Span
from kvgen.syntax import File, Word
from kvgen.tree import build
from kvgen.words import Words, words

_NUMBERLIKE = re.compile(r"[+-]?\.?[0-9]")
_FOREIGN_COMMENTS = ("//", "/*", "--", ";;", "%")
_DECLARATIONS = ("POLICY", "MODEL")
_ENDS = ("RBRACE", "POLICY", "MODEL")


def parse(source: SourceFile) -> tuple[File, tuple[Diagnostic, ...]]:
    """The file's syntax, and what of it could not be read."""
    problems = Problems(source)
    return _Parser(source, grammar(), words(), problems).run(), tuple(problems.found)


class _Parser:
    """One run over one file."""

    def __init__(self, source: SourceFile, grammar: Grammar, words: Words, out: Problems) -> None:
        self.source, self.words, self.out = source, words, out
        self.grammar = grammar
        self.state = grammar.start()
        self.table = self.state.parse_conf.parse_table.states
        self.kind = ""  # of the declaration whose head or body we are in
        self.opening: Token | None = None  # its brace, once in the body
        self.head: Token | None = None  # its keyword
        self.clause: Token | None = None  # the keyword of the clause in hand
        self.depth = 0  # of the parser's stack below that keyword
        self.quiet = False  # the clause in hand was guessed: its other mistakes follow from that
        self.skipping = ""  # what is being skipped: "", "line", "clause", "head" or "top"
        self.skipped = ""  # the type of the token last skipped
        self.comments: list[Word] = []

    def run(self) -> File:
        for token in self.significant():
            self.take(token)
        self.finish()
        return build(self.end_of_file(), tuple(self.comments))

    def significant(self) -> Iterator[Token]:
        for token in self.grammar.tokens(self.source.text):
            if token.type == "COMMENT":
                self.comments.append(Word(token.text.rstrip(), token.span))
            else:
                yield token

    # -- What the grammar allows

    def allowed(self) -> dict[str, object]:
        return self.table[self.state.position]  # type: ignore[return-value]

    def take(self, token: Token) -> None:
        if self.skipping and not self.ends_skip(token):
            self.skipped = token.type
            return
        self.skipping = ""
        allowed = self.allowed()
        if token.type in allowed:
            self.feed(token)
        elif "NAME" in allowed and token.type in self.grammar.words:
            self.feed(token._replace(type="NAME"))
        else:
            self.mistake(token)

    def feed(self, token: Token) -> None:
        """Hand an allowed token to the grammar and note where that leaves us."""
        self.state.feed_token(token)
        kind = token.type
        if kind in _DECLARATIONS:
            self.kind, self.head = self.grammar.words[kind], token
        elif kind == "LBRACE":
            self.opening, self.clause = token, None
        elif kind == "RBRACE":
            self.kind, self.opening, self.clause, self.head = "", None, None, None
        elif self.kind and kind in self.grammar.clauses[self.kind]:
            self.clause, self.quiet = token, False
            self.depth = len(self.state.state_stack) - 1

    def insert(self, kind: str, at: Token, text: str = "") -> None:
        """Feed a token that is not in the text, or stands for one that could not be read."""
        self.feed(at._replace(type=kind, text=text))

    def complete(self) -> bool:
        """Whether the clause in hand could end here."""
        return "RBRACE" in self.allowed()

    # -- Skipping

    def ends_skip(self, token: Token) -> bool:
        kind = token.type
        if self.skipping == "line":
            return token.fresh
        if self.skipping == "top":
            return kind in _DECLARATIONS or (
                token.fresh and kind == "NAME" and self.words.declaration(token.text) is not None
            )
        if kind in _ENDS or kind in self.words.any_clause:
            return True
        if self.skipping == "head":
            return kind == "LBRACE"
        in_repeat = self.clause is not None and self.clause.type == "REPEAT"
        if kind != "NAME" or in_repeat:
            return False
        behind_number = self.skipped in (
            "INTEGER",
            "DECIMAL",
        )  # no clause has a word of its own there
        return token.fresh or behind_number or self.words.clause(self.kind, token.text) is not None

    # -- Mistakes, by where they stand

    def mistake(self, token: Token) -> None:
        if token.type == "SYMBOL":
            self.symbol(token)
        elif self.unreadable_value(token):
            pass
        elif self.opening is not None:
            self.in_body(token)
        elif self.head is not None:
            self.in_head(token)
        else:
            self.at_top(token)

    def report(
        self,
        code: str,
        message: str,
        token: Token,
        label: str,
        help: str,
        *more: Label,
        fix: Fix | None = None,
    ) -> None:
        if not self.quiet:
            self.out.add(code, message, Label(token.span, label), help, *more, fix=fix)

    def symbol(self, token: Token) -> None:
        """A sign that means nothing: leave it out and go on as if it were not there."""
        if token.text.startswith(_FOREIGN_COMMENTS):
            self.report(
                "KV106", f"`{shown(token.text)}` does not begin a comment", token, "not part of the language",
                "comments begin with `#`", fix=Fix(token.span, "#"),
            )  # fmt: skip
            self.skipping = "line"
            return
        sign = token.text[0]
        what = "it" if sign.isascii() and sign.isprintable() else f"the character U+{ord(sign):04X}"
        self.report(
            "KV106", f"`{shown(token.text)}` is not used in the language", token, "not part of the language",
            f"leave {what} out: words are separated by spaces or line ends alone", fix=Fix(token.span, " "),
        )  # fmt: skip

    def unreadable_value(self, token: Token) -> bool:
        """A number or name that is none where one is due: reported, and read as an unknown one."""
        allowed = self.allowed()
        odd = token.type in ("JUNK", "DECIMAL", "INTEGER")
        if odd and "INTEGER" in allowed and _NUMBERLIKE.match(token.text):
            self.odd_number(token, "DECIMAL" in allowed)
            self.insert("INTEGER", token)
        elif odd and "NAME" in allowed:
            self.odd_name(token)
            self.insert("NAME", token)
        else:
            return False
        return True

    def odd_number(self, token: Token, any_number: bool) -> None:
        owner = f"`{self.clause.text}`" if self.clause else "`kvgen`"
        if token.text.startswith("-"):
            code, why = ("KV208" if any_number else "KV201"), "negative"
            help = "write a number above 0" if any_number else "counts have no sign: write `512`"
        else:
            code, why = ("KV208", "not a number") if any_number else ("KV105", "not a whole number")
            help = "whole numbers are written `512`, `4_096` or `4k` (4096)"
            help = f"write it as `50`, `0.0625` or `1e-3`; {help}" if any_number else help
        self.report(code, f"{owner} of {shown(token.text)}", token, why, help)

    def odd_name(self, token: Token) -> None:
        self.report(
            "KV304", f"`{shown(token.text)}` is not a name", token, "a name is due here",
            "a name is letters, digits and `_`, and begins with a letter: `Local_2`",
        )  # fmt: skip

    # -- In a body

    def in_body(self, token: Token) -> None:
        kind = token.type
        if kind in _DECLARATIONS:
            self.not_closed(token)
        elif not self.complete() and (kind in self.words.any_clause or kind == "RBRACE"):
            self.unfinished(token)
            self.take(token)
        elif kind in self.words.any_clause:
            self.other_kind(token)
        elif kind == "NAME" or kind in self.grammar.words:
            self.word(token)
        else:
            self.unexpected(token)

    def give_up(self, token: Token, keyword: str, skip: bool = True) -> None:
        """Put BROKEN in the place of the clause in hand, or of one that begins with `token`."""
        if not self.complete() and self.clause is not None:
            token = self.clause
            del self.state.state_stack[self.depth :]
            del self.state.value_stack[self.depth - 1 :]
        self.insert("BROKEN", token, keyword)
        self.skipped = ""
        self.skipping = "clause" if skip else ""

    def unfinished(self, found: Token) -> None:
        """The clause in hand stops short: `window` and nothing."""
        clause = self.clause
        assert clause is not None
        self.report(
            "KV104", f"`{clause.text}` is not finished", clause, f"{self.words.expected(self.allowed())} is missing",
            self.forms(clause), Label(found.span, "but this follows"),
        )  # fmt: skip
        self.give_up(found, clause.text, skip=False)
        self.quiet = False

    def word(self, token: Token) -> None:
        """A word where it means nothing: a misspelt option or clause, or one too many."""
        option = self.words.option(self.allowed(), token.text)
        clause = self.words.clause(self.kind, token.text)
        whole = self.complete()
        as_clause = whole and (token.fresh or self.clause is None or clause is not None)
        if option and not (as_clause and clause and clause[0] < option[0]):
            self.misspelt_option(token, option[1])
        elif as_clause:
            self.unknown_clause(token, clause[1] if clause else None)
        elif not whole and token.fresh:
            self.unfinished(token)
            self.take(token)
        else:
            self.unknown_word(token)

    def misspelt_option(self, token: Token, option: str) -> None:
        self.report(
            "KV102", f"unknown word `{shown(token.text)}` in `{self.clause.text}`", token, f"did you mean `{option}`?",
            f"write `{option}`", fix=Fix(token.span, option),
        )  # fmt: skip
        self.insert(self.words.types[option], token, option)

    def unknown_clause(self, token: Token, near: str | None) -> None:
        known = ", ".join(f"`{word}`" for word in self.words.clauses[self.kind])
        self.quiet = False
        self.report(
            "KV101", f"unknown clause `{shown(token.text)}`", token,
            f"did you mean `{near}`?" if near else f"no clause of a {self.kind}",
            f"write `{near}`" if near else f"the clauses of a {self.kind} are {known}",
            fix=Fix(token.span, near) if near else None,
        )  # fmt: skip
        if near:
            self.insert(self.words.types[near], token, near)
            self.quiet = True
        else:
            self.give_up(token, "")

    def unknown_word(self, token: Token) -> None:
        """A word that is like none that may stand here."""
        clause, allowed = self.clause, self.allowed()
        if "COMMA" in allowed:
            due, fix = (
                "a `,` is due before it",
                Fix(Span(token.span.start, token.span.start), ", "),
            )
        else:
            due, fix = f"{self.words.expected(allowed)} is due here", None
        message = f"unknown word `{shown(token.text)}` in `{clause.text}`"
        self.report("KV102", message, token, due, self.forms(clause), fix=fix)
        self.skip_clause(token)

    def unexpected(self, token: Token) -> None:
        after = f"after `{self.clause.text}`" if self.clause else f"in a {self.kind}"
        self.report(
            "KV103", f"`{shown(token.text)}` does not belong here", token, f"not expected {after}",
            self.forms(self.clause),
        )  # fmt: skip
        self.skip_clause(token)

    def skip_clause(self, token: Token) -> None:
        """Skip to the next border; the clause in hand stands if it was whole."""
        if self.complete():
            self.skipping = "clause"
        else:
            self.give_up(token, self.clause.text)

    def other_kind(self, token: Token) -> None:
        other = "model" if self.kind == "policy" else "policy"
        self.quiet = False
        self.report(
            "KV114", f"`{token.text}` is a clause of a {other}", token, f"this is a {self.kind}",
            f"move it to a {other}, or leave it out", self.opened(),
        )  # fmt: skip
        self.give_up(token, "")

    def not_closed(self, token: Token) -> None:
        """A new declaration begins, or the file ends, inside a body."""
        if not self.complete():
            self.unfinished(token)
        self.quiet = False
        assert self.opening is not None
        self.report(
            "KV109", f"the {self.kind} is not closed", self.opening, "this brace is never closed",
            "write a `}` after its last clause", Label(token.span, "needed before this"),
        )  # fmt: skip
        self.insert("RBRACE", token)
        if token.type in _DECLARATIONS:
            self.take(token)

    def opened(self) -> Label:
        assert self.head is not None
        return Label(self.head.span, f"the {self.kind} begins here")

    def forms(self, clause: Token | None) -> str:
        """How the clause in hand is written."""
        forms = self.words.forms.get(clause.text, ()) if clause is not None else ()
        if not forms:
            return f"a {self.kind} holds clauses only, then `}}`"
        return f"`{clause.text}` is written " + " or ".join(f"`{form}`" for form in forms)

    # -- In a head

    def in_head(self, token: Token) -> None:
        if "NAME" in self.allowed():
            self.no_name(token)
        elif "FROM" in self.allowed() and self.words.is_from(token.text):
            self.report(
                "KV113", f"unknown word `{shown(token.text)}`", token, "did you mean `from`?", "write `from`",
                fix=Fix(token.span, "from"),
            )  # fmt: skip
            self.insert("FROM", token, "from")
        else:
            self.no_brace(token)

    def no_name(self, token: Token) -> None:
        self.report(
            "KV113", f"a {self.kind} without a name", token, "a name is due here",
            f"write `{self.kind} Name {{ ... }}`", self.opened(),
        )  # fmt: skip
        self.insert("NAME", token)
        if token.type in ("LBRACE", "RBRACE"):
            self.take(token)

    def no_brace(self, token: Token) -> None:
        kind = token.type
        head = "policy Name from Other {" if self.kind == "policy" else "model Name {"
        if not self.quiet:
            self.report(
                "KV113", f"`{shown(token.text)}` does not belong in the head of a {self.kind}", token,
                "`{` is due here", f"write `{head}`", self.opened(),
            )  # fmt: skip
        if kind not in _ENDS and kind not in self.words.any_clause and kind != "LBRACE":
            self.skipping, self.quiet = "head", True
            return
        self.broken_body(token)
        self.take(token)

    def broken_body(self, token: Token) -> None:
        """Open the body, and note that the head was not read: what seems missing may have been in it."""
        self.insert("LBRACE", token)
        self.insert("BROKEN", token, "from")
        self.quiet = False
        if token.type in _DECLARATIONS:
            self.insert("RBRACE", token)

    # -- Outside of declarations

    def at_top(self, token: Token) -> None:
        declaration = self.words.declaration(token.text)
        if "INTEGER" in self.allowed():
            self.no_version(token)
        elif token.type == "RBRACE":
            self.report(
                "KV110", "this `}` closes nothing", token, "no policy or model is open", "leave it out",
                fix=Fix(token.span, ""),
            )  # fmt: skip
        elif token.type == "KVGEN":
            self.report(
                "KV112", "the version is not on the first line", token, "must come before all declarations",
                "move `kvgen 1` to the first line of the file",
            )  # fmt: skip
            self.skipping = "top"
        elif declaration:
            self.report(
                "KV107", f"unknown word `{shown(token.text)}`", token, f"did you mean `{declaration}`?",
                f"write `{declaration}`", fix=Fix(token.span, declaration),
            )  # fmt: skip
            self.insert(self.words.types[declaration], token, declaration)
        else:
            self.stray(token)

    def no_version(self, token: Token) -> None:
        self.report(
            "KV111", "`kvgen` without a version", token, "a version is due here", "write `kvgen 1`"
        )
        self.insert("INTEGER", token)
        if token.type in _DECLARATIONS:
            self.take(token)

    def stray(self, token: Token) -> None:
        kind = "policy" if token.type in self.grammar.clauses["policy"] else "model"
        if token.type in self.words.any_clause:
            self.report(
                "KV108", f"`{token.text}` is outside of any {kind}", token, "no policy or model is open here",
                f"clauses stand in a {kind}: write `{kind} Name {{` before them, or drop a `}}` too many",
            )  # fmt: skip
        else:
            self.report(
                "KV107", f"`{shown(token.text)}` begins neither a policy nor a model", token, "not a declaration",
                "a file holds `policy Name { ... }` and `model Name { ... }`",
            )  # fmt: skip
        self.skipping = "top"

    # -- The end

    def finish(self) -> None:
        """Report and close whatever the end of the text leaves open."""
        self.skipping = ""
        end = self.end_token()
        if self.opening is None and self.head is not None:
            self.report(
                "KV113", f"the file ends in the head of a {self.kind}", self.head, "begun here",
                f"write `{self.kind} Name {{ ... }}`",
            )  # fmt: skip
            if "NAME" in self.allowed():
                self.insert("NAME", end)
            self.insert("LBRACE", end)
            self.insert("BROKEN", end, "from")
            self.insert("RBRACE", end)
        elif self.opening is not None:
            self.not_closed(end)
        elif "INTEGER" in self.allowed():
            self.no_version(end)

    def end_token(self) -> Token:
        end = len(self.source.text)
        return Token("$END", "", end, end, True)

    def end_of_file(self) -> object:
        return self.state.feed_token(self.end_token(), is_end=True)
