"""What to say of text that the grammar does not take. Only words; `parse` decides when, and how to go on."""

from __future__ import annotations

from kvgen.diagnostics import Fix, Label, Problems, shown
from kvgen.grammar import Token
from kvgen.machine import Machine
from kvgen.source import Span
from kvgen.words import Words


class Mistakes:
    """`guessed`: a clause or head that was misspelt; if it goes on oddly, the guess may be why."""

    def __init__(self, words: Words, machine: Machine, out: Problems) -> None:
        self.words, self.machine, self.out = words, machine, out
        self.guessed: Token | None = None

    @property
    def quiet(self) -> bool:
        """Whether the clause or head in hand is the guessed one."""
        guessed = self.guessed
        return guessed is not None and guessed in (self.machine.clause, self.machine.head)

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
        self.out.add(code, message, Label(token.span, label), help, *more, fix=fix)

    def misspelt(self, code: str, what: str, token: Token, near: str) -> None:
        fix = Fix.of(token.span, near)
        self.report(code, what, token, f"did you mean `{near}`?", f"write `{near}`", fix=fix)

    # -- Signs, numbers, names

    def foreign_comment(self, token: Token) -> None:
        self.report(
            "KV106",
            f"`{shown(token.text)}` does not begin a comment",
            token,
            "comments begin with `#`",
            "write `#`",
            fix=Fix.of(token.span, "#"),
        )

    def symbol(self, token: Token) -> None:
        sign = token.text[0]
        plain = sign.isascii() and sign.isprintable()
        what = "it" if plain else f"the character U+{ord(sign):04X}"
        self.report(
            "KV106",
            f"`{shown(token.text)}` is not used in the language",
            token,
            "words are separated by spaces or line ends alone",
            f"leave {what} out",
            fix=Fix.of(token.span, " "),
        )

    def number(self, token: Token, any_number: bool) -> None:
        owner = self._counted()
        if token.text.startswith("-"):
            code, why = ("KV208" if any_number else "KV201"), "negative"
            plain = shown(token.text.lstrip("-"))
            help = f"write it without the sign: `{plain}`"
        elif any_number:
            code, why = "KV208", "a number is due here"
            help = "write it as `50`, `0.0625` or `1e-3`"
        else:
            code, why = "KV105", "a whole number is due here"
            help = "whole numbers are written `512`, `4_096` or `4k` (4096)"
        self.report(code, f"`{owner}` of {shown(token.text)}", token, why, help)

    def _counted(self) -> str:
        """What the number that is due counts: the word before it."""
        last, clause = self.machine.last, self.machine.clause
        if last is not None and last.type in self.words.types.values():
            return last.text
        return "number" if clause is None else clause.text

    def name(self, token: Token) -> None:
        self.report(
            "KV304",
            f"`{shown(token.text)}` is not a name",
            token,
            "a name is due here",
            "a name is letters, digits and `_`, and begins with a letter: `Local_2`",
        )

    # -- In a body

    def unfinished(self, clause: Token, found: Token) -> None:
        if self.quiet:
            return
        self.report(
            "KV104",
            f"`{clause.text}` is not finished",
            clause,
            f"{self.words.expected(self.machine.allowed)} is missing",
            self._forms(clause),
            *_before(found, "but this follows"),
        )

    def unknown_clause(self, token: Token, near: str | None) -> None:
        kind, message = self.machine.kind, f"unknown clause `{shown(token.text)}`"
        if near:
            self.misspelt("KV101", message, token, near)
            return
        known = ", ".join(f"`{word}`" for word in self.words.clauses[kind])
        help = f"the clauses of a {kind} are {known}"
        self.report("KV101", message, token, f"no clause of a {kind}", help)

    def misspelt_option(self, clause: Token, token: Token, near: str) -> None:
        message = f"unknown word `{shown(token.text)}` in `{clause.text}`"
        self.misspelt("KV102", message, token, near)

    def unknown_word(self, clause: Token, token: Token) -> None:
        if self.quiet:
            return
        allowed = self.machine.allowed
        message = f"`{clause.text}` does not take `{shown(token.text)}` here"
        if "COMMA" in allowed:
            fix = Fix.of(Span(token.start, token.start), ", ")
            help = f"write `, {shown(token.text)}`"
            self.report("KV102", message, token, "a `,` is due before it", help, fix=fix)
            return
        due = f"{self.words.expected(allowed)} is due here"
        self.report("KV102", message, token, due, self._forms(clause))

    def unexpected(self, token: Token) -> None:
        if self.quiet:
            return
        clause, kind = self.machine.clause, self.machine.kind
        due = self.words.expected(self.machine.allowed) if clause else "a clause or `}`"
        self.report(
            "KV103",
            f"`{shown(token.text)}` does not belong here",
            token,
            f"{due} is due here",
            self._forms(clause) if clause else f"leave it out: a {kind} holds clauses only",
        )

    def other_kind(self, token: Token) -> None:
        kind = self.machine.kind
        other = "model" if kind == "policy" else "policy"
        self.report(
            "KV114",
            f"`{token.text}` is a clause of a {other}",
            token,
            f"a {kind} has no such clause",
            f"move it to a {other}, or leave it out",
            *self._begun(),
        )

    def not_closed(self, opening: Token, found: Token) -> None:
        self.report(
            "KV109",
            f"the {self.machine.kind} is not closed",
            opening,
            "this brace is never closed",
            "write a `}` after its last clause",
            *_before(found, "needed before this"),
        )

    def _forms(self, clause: Token) -> str:
        forms = " or ".join(f"`{form}`" for form in self.words.forms[clause.text])
        return f"`{clause.text}` is written {forms}"

    def _begun(self) -> tuple[Label, ...]:
        head = self.machine.head
        return () if head is None else (Label(head.span, f"the {head.text} begins here"),)

    # -- In a head

    def misspelt_from(self, token: Token) -> None:
        self.misspelt("KV113", f"unknown word `{shown(token.text)}`", token, "from")

    def no_name(self, token: Token) -> None:
        kind = self.machine.kind
        help = f"write `{kind} Name {{ ... }}`"
        label = "a name is due here"
        self.report("KV113", f"a {kind} without a name", token, label, help, *self._begun())

    def no_brace(self, token: Token) -> None:
        if self.quiet:
            return
        kind = self.machine.kind
        head = "policy Name from Other {" if kind == "policy" else "model Name {"
        self.report(
            "KV113",
            f"`{shown(token.text)}` does not belong in the head of a {kind}",
            token,
            "`{` is due here",
            f"write `{head}`",
            *self._begun(),
        )

    def ends_in_head(self, head: Token) -> None:
        self.report(
            "KV113",
            f"the file ends in the head of a {head.text}",
            head,
            "begun here, and nothing follows",
            f"write `{head.text} Name {{ ... }}`",
        )

    # -- Outside of declarations

    def no_version(self, token: Token) -> None:
        label = "a version is due here"
        self.report("KV111", "`kvgen` without a version", token, label, "write `kvgen 1`")

    def late_version(self, token: Token) -> None:
        self.report(
            "KV112",
            "the version is not on the first line",
            token,
            "it says how to read what comes before it",
            "move `kvgen 1` to the first line of the file, and let it stand once",
        )

    def closes_nothing(self, token: Token) -> None:
        self.report(
            "KV110",
            "this `}` closes nothing",
            token,
            "no policy or model is open",
            "leave it out",
            fix=Fix.of(token.span, ""),
        )

    def misspelt_declaration(self, token: Token, near: str) -> None:
        self.misspelt("KV107", f"unknown word `{shown(token.text)}`", token, near)

    def stray_clause(self, token: Token, kind: str) -> None:
        self.report(
            "KV108",
            f"`{token.text}` is outside of any {kind}",
            token,
            "no policy or model is open here",
            f"clauses stand in a {kind}: write `{kind} Name {{` before them, or drop a `}}` too many",
        )

    def no_declaration(self, token: Token) -> None:
        self.report(
            "KV107",
            f"`{shown(token.text)}` begins neither a policy nor a model",
            token,
            "a declaration is due here",
            "write `policy Name { ... }` or `model Name { ... }`",
        )


def _before(found: Token, text: str) -> tuple[Label, ...]:
    """A label on what came instead, unless that is the end of the file."""
    return () if found.type == "$END" else (Label(found.span, text),)
