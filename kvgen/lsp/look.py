"""What stands at a place: the pages that explain it, and where its name is declared."""

from __future__ import annotations

from collections.abc import Iterator

from kvgen import listing
from kvgen.ir import Model
from kvgen.lsp.complete import source_of
from kvgen.pipeline import Checked
from kvgen.source import Span
from kvgen.syntax import Clause, Declaration, Word


def hover(checked: Checked, at: int) -> str:
    """Markdown: the pages of the problems at a place, the policy it names, else the clause's page; "" for nothing."""
    codes = dict.fromkeys(
        one.code for one in checked.diagnostics if _holds(one.primary.span, at) and at >= 0
    )
    pages = [listing.page(code) for code in codes]
    declared = declaration_of(checked, at)
    clause = _clause_at(checked, at)
    if declared is not None:
        pages.append(source_of(checked, declared))
    elif clause is not None and clause.keyword in listing.explained():
        pages.append(listing.page(clause.keyword))
    return "\n---\n\n".join(pages)


def declaration_of(checked: Checked, at: int) -> Declaration | None:
    """The policy that a name at a place means: behind `from`, in `repeat`, or of a layer in `share`."""
    declared = {
        one.name.text: one for one in reversed(checked.syntax.declarations) if one.kind == "policy"
    }
    for name, span in _mentions(checked):
        if _holds(span, at):
            return declared.get(name)
    return None


def _mentions(checked: Checked) -> Iterator[Word]:
    """Policy names with their places; a layer's number stands for the name of its policy."""
    models = {one.name: one for one in checked.program.models} if checked.program else {}
    for one in checked.syntax.declarations:
        if one.parent is not None:
            yield one.parent
        for clause in one.clauses:
            if clause.keyword == "repeat":
                yield from clause.words
            elif clause.keyword == "share" and one.name.text in models:
                yield from _layers(clause, models[one.name.text])


def _layers(clause: Clause, model: Model) -> Iterator[Word]:
    from kvgen.clauses.numbers import integer

    for word in clause.numbers():
        layer = integer(word.text)
        if layer is not None:
            yield Word(model.policy_of(layer), word.span)


def _clause_at(checked: Checked, at: int) -> Clause | None:
    clauses = (clause for one in checked.syntax.declarations for clause in one.clauses)
    return next((clause for clause in clauses if _holds(clause.span, at)), None)


def _holds(span: Span, at: int) -> bool:
    """An editor asks for the place before a character, or for the end of a word."""
    return span.start <= at <= max(span.end, span.start + 1)
