"""`from`: what clauses a policy has, its own and the copied ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kvgen.clauses import BY_KEYWORD, POLICY
from kvgen.diagnostics import Fix, Label, Problems
from kvgen.nearest import Nearest
from kvgen.source import Span
from kvgen.syntax import Clause, Declaration, Word, clause_text

T = TypeVar("T")

_KEYWORDS = {kind.value: kind.keyword for kind in POLICY}


@dataclass(frozen=True, slots=True)
class Given:
    """A clause as some policy wrote it. `value` None: it was refused there."""

    clause: Clause
    value: object
    owner: Declaration


@dataclass(frozen=True, slots=True)
class Resolved:
    """A policy's clauses by keyword. `doubtful`: some may be missing here because its head or parent could not be read."""

    declaration: Declaration
    given: Mapping[str, Given]
    doubtful: bool

    def get(self, kind: type[T]) -> T | None:
        """The clause's value; None where it is absent or was refused."""
        given = self.given.get(_KEYWORDS[kind])
        return given.value if given is not None and isinstance(given.value, kind) else None

    def own(self, keyword: str) -> bool:
        given = self.given.get(keyword)
        return given is not None and given.owner is self.declaration

    def refused(self, *keywords: str) -> bool:
        """Whether one of these was written and means nothing that could be judged."""
        return any(k in self.given and self.given[k].value is None for k in keywords)

    def unknown(self, *keywords: str) -> bool:
        """Whether we cannot say if one of these is there, or what it says."""
        absent = any(keyword not in self.given for keyword in keywords)
        return self.refused(*keywords) or (self.doubtful and absent)

    def label(self, keyword: str, text: str) -> Label:
        given = self.given[keyword]
        copied = "" if self.own(keyword) else f" (copied from `{given.owner.name.text}`)"
        return Label(given.clause.span, text + copied)


class Names:
    """The declarations of a file by name, and the nearest of them to a misspelt one."""

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        self.policies: dict[str, int] = {}
        self.models: set[str] = set()
        for index, declaration in enumerate(declarations):
            if declaration.kind == "model":
                self.models.add(declaration.name.text)
            elif declaration.name.text:
                self.policies.setdefault(declaration.name.text, index)
        self._nearest: Nearest | None = None

    def unknown(self, code: str, word: Word, problems: Problems) -> None:
        """Report a name that is no policy's."""
        if not word.text:
            return
        near = self._near(word.text)
        model = word.text in self.models
        problems.add(
            code,
            f"`{word.text}` is a model" if model else f"no policy is called `{word.text}`",
            Label(word.span, "a policy's name is due here" if model or not near else f"did you mean `{near}`?"),
            f"write `{near}`" if near and not model else "name a policy of this file",
            fix=Fix.of(word.span, near) if near and not model else None,
        )  # fmt: skip

    def _near(self, word: str) -> str | None:
        if self._nearest is None:
            self._nearest = Nearest(self.policies, 2 if len(self.policies) < 200 else 1)
        return self._nearest.of(word)


def resolve(
    declarations: Sequence[Declaration], names: Names, problems: Problems
) -> dict[int, Resolved]:
    """Each policy's clauses, by its index. A policy comes after the one it copies, in the order of the answer."""
    resolved: dict[int, Resolved] = {}
    for index, declaration in enumerate(declarations):
        if declaration.kind == "policy" and index not in resolved:
            _resolve_line(index, declarations, names, resolved, problems)
    return resolved


def _resolve_line(
    index: int,
    declarations: Sequence[Declaration],
    names: Names,
    resolved: dict[int, Resolved],
    problems: Problems,
) -> None:
    """A policy and those it copies, eldest first. A loop, not a recursion: a line may be 20,000 policies long."""
    line: dict[int, None] = {}
    here: int | None = index
    while here is not None and here not in resolved and here not in line:
        line[here] = None
        here = _parent(declarations[here], names)
    if here in line:
        members = list(line)
        _circle([declarations[i] for i in members[members.index(here) :]], problems)
    for member in reversed(line):
        declaration = declarations[member]
        parent = _parent(declaration, names)
        if parent is None and declaration.parent is not None:
            names.unknown("KV305", declaration.parent, problems)
        above = None if parent is None else resolved.get(parent)
        resolved[member] = _resolved(declaration, above, problems)


def _parent(declaration: Declaration, names: Names) -> int | None:
    return None if declaration.parent is None else names.policies.get(declaration.parent.text)


def _circle(members: list[Declaration], problems: Problems) -> None:
    members.sort(key=lambda member: member.span)
    first, *others = members
    chain = f"`{first.name.text}`" if not others else f"`{first.name.text}` and {len(others)} more"
    if len(others) == 1:
        chain = f"`{first.name.text}` and `{others[0].name.text}`"
    problems.add(
        "KV306",
        f"{chain} copy each other" if others else f"{chain} copies itself",
        Label(_from(first), "the circle begins here"),
        "one of them must stand alone: leave its `from` out and write its clauses",
        *(Label(_from(other), "and goes on here") for other in others[:3]),
    )


def _from(declaration: Declaration) -> Span:
    parent = declaration.parent
    return (
        declaration.name.span
        if parent is None
        else Span(declaration.name.span.start, parent.span.end)
    )


def _resolved(declaration: Declaration, parent: Resolved | None, problems: Problems) -> Resolved:
    own = read_own(declaration, problems)
    lost = parent is None and declaration.parent is not None
    doubtful = lost or any(
        clause.broken and clause.keyword == "from" for clause in declaration.clauses
    )
    if parent is None:
        return Resolved(declaration, own, doubtful)
    copied = dict(parent.given)
    if "stateless" in own:
        copied.pop("storage", None)
        copied.pop("trim", None)
    if "storage" in own:  # both say what is stored: the new word replaces the copied one
        copied.pop("stateless", None)
    return Resolved(declaration, {**copied, **own}, doubtful or parent.doubtful)


def read_own(declaration: Declaration, problems: Problems) -> dict[str, Given]:
    """The clauses of one policy alone, each judged by its own rules; a second one of a kind is refused."""
    own: dict[str, Given] = {}
    for clause in declaration.clauses:
        kind = BY_KEYWORD.get(clause.keyword)
        if kind is None:
            continue
        value = None if clause.broken else kind.read(clause, problems)
        first = own.setdefault(clause.keyword, Given(clause, value, declaration))
        if first.clause is not clause and not first.clause.broken and not clause.broken:
            twice(declaration, first.clause, clause, problems)
    return own


def twice(declaration: Declaration, first: Clause, second: Clause, problems: Problems) -> None:
    problems.add(
        "KV207",
        f"`{second.keyword}` twice in one {declaration.kind}",
        Label(second.span, "the second one"),
        "a clause may stand once: leave one of the two out",
        Label(first.span, "the first one"),
        fix=Fix.of(second.span, "") if clause_text(first) == clause_text(second) else None,
    )
