"""What is wrong with a file, as data: a code, a place, a reason, a way out. `report` turns it into text."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kvgen.source import Place, SourceFile, Span

FAMILIES = {
    "KV1": "How a file is written",
    "KV2": "The clauses of a policy",
    "KV3": "Names and `from`",
    "KV4": "Models",
    "KV9": "Warnings",  # KV91: of a table that `kvgen tune` wrote
}

# The one table of codes. A code keeps its meaning for ever; each has a page in kvgen/explain and a case in tests/language.
CODES: dict[str, str] = {
    "KV100": "the file is not UTF-8",
    "KV101": "unknown clause",
    "KV102": "unknown word in a clause",
    "KV103": "something that does not belong here",
    "KV104": "a clause that is not finished",
    "KV105": "not a whole number",
    "KV106": "a character that the language does not use",
    "KV107": "neither a policy nor a model",
    "KV108": "a clause outside of a policy or model",
    "KV109": "a policy or model that is not closed",
    "KV110": "a `}` that closes nothing",
    "KV111": "a language version that this kvgen does not read",
    "KV112": "a version line in the middle of a file",
    "KV113": "a policy or model whose head cannot be read",
    "KV114": "a clause of the other kind of declaration",
    "KV201": "a count below 1",
    "KV202": "a number beyond 63 bits",
    "KV203": "slack without a ring",
    "KV204": "no heads",
    "KV205": "no dim",
    "KV206": "query heads that are not a multiple of kv heads",
    "KV207": "a clause twice",
    "KV208": "not a finite number above 0",
    "KV209": "a ring without a window or a chunk",
    "KV210": "slack smaller than the bypass",
    "KV211": "sinks with a chunk",
    "KV212": "bypass with trim off",
    "KV213": "stateless beside storage",
    "KV214": "stateless beside trim",
    "KV215": "stateless with left padding",
    "KV301": "a name twice",
    "KV302": "a name that is a Python keyword",
    "KV303": "a name that is too long",
    "KV304": "not a name",
    "KV305": "from an unknown policy",
    "KV306": "from in a circle",
    "KV401": "a model without layers",
    "KV402": "a model without repeat",
    "KV403": "a model of an unknown policy",
    "KV404": "a shared layer out of range",
    "KV405": "a layer that shares from itself",
    "KV406": "a layer that shares from a later one",
    "KV407": "a layer that shares from a layer that shares",
    "KV408": "a layer that shares from a different policy",
    "KV409": "a model whose policies differ in query heads",
    "KV410": "a model whose policies differ in dtype",
    "KV411": "a layer that shares twice",
    "KV901": "no version line",
    "KV902": "sinks without a window",
    "KV903": "sinks that are not smaller than the window",
    "KV904": "a chunk below the window",
    "KV905": "bypass without a ring",
    "KV911": "a tuned table that cannot be read",
    "KV912": "a tuned entry that is not used",
}


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Label:
    """A place and what is to be said of it."""

    span: Span
    text: str


class Edit(NamedTuple):
    """`replacement` in place of `span` (empty: an insertion)."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    """What mends the problem: edits that do not overlap, in the order of their places, all of them or none."""

    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, span: Span, replacement: str) -> Fix:
        return cls((Edit(span, replacement),))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem of one file. `help` is the way out, `secondary` the other places that have to do with it."""

    code: str
    message: str
    source: SourceFile = field(repr=False)
    primary: Label
    help: str
    secondary: tuple[Label, ...] = ()
    fix: Fix | None = None

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.code.startswith("KV9") else Severity.ERROR

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    @property
    def place(self) -> Place:
        return self.source.place(self.primary.span.start)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Those of its fix, none where it has none."""
        return () if self.fix is None else self.fix.edits

    def __str__(self) -> str:
        """file:line:column: error[CODE]: message"""
        line, column = self.place
        head = f"{self.source.name}:{line}:{column}"
        return f"{head}: {self.severity.value}[{self.code}]: {self.message}"


class Problems:
    """Collects the diagnostics of one pass over one file."""

    __slots__ = ("found", "source")

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.found: list[Diagnostic] = []

    def add(
        self,
        code: str,
        message: str,
        primary: Label,
        help: str,
        *secondary: Label,
        fix: Fix | None = None,
    ) -> None:
        if code not in CODES:
            raise KeyError(code)
        self.found.append(Diagnostic(code, message, self.source, primary, help, secondary, fix))

    def sorted(self) -> tuple[Diagnostic, ...]:
        """In the order of their places, then of their codes."""
        return tuple(sorted(self.found, key=lambda d: (d.primary.span, d.code)))


def shown(text: str) -> str:
    """A piece of a file as messages quote it: printable and short."""
    text = text if len(text) <= 40 else text[:37] + "..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)
