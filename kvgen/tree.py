"""Lark's tree to ours: the only module that knows how Lark spells a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kvgen.source import Span
from kvgen.syntax import Clause, Declaration, File, Word

if TYPE_CHECKING:
    from lark import Token, Tree

    Node = Tree[Token]


def build(tree: object, comments: tuple[Word, ...]) -> File:
    nodes = cast("list[Node]", cast("Node", tree).children)
    version, span = None, Span(0, 0)
    if nodes and nodes[0].data == "version":
        keyword, number = _tokens(nodes[0])
        version, span = _word(number), Span(_span(keyword).start, _span(number).end)
        nodes = nodes[1:]
    return File(version, span, tuple(_declaration(node) for node in nodes), comments)


def _declaration(node: Node) -> Declaration:
    tokens = [child for child in node.children if isinstance(child, str)]
    clauses = tuple(_clause(cast("Node", c)) for c in node.children if not isinstance(c, str))
    keyword, name, *parent, opening, closing = tokens
    return Declaration(
        kind=str(node.data),
        span=Span(_span(keyword).start, _span(closing).end),
        name=_word(name),
        parent=_word(parent[1]) if parent else None,
        opening=_span(opening),
        closing=_span(closing),
        clauses=clauses,
    )


def _clause(node: Node) -> Clause:
    keyword, *rest = _tokens(node)
    start = _span(keyword)
    if node.data == "broken":
        return Clause(str(keyword), start, start, broken=True)
    span = Span(start.start, _span(rest[-1]).end if rest else start.end)
    return Clause(str(keyword), span, start, tuple(_word(token) for token in rest))


def _tokens(node: Node) -> list[Token]:
    return cast("list[Token]", node.children)


def _word(token: Token) -> Word:
    return Word(str(token), _span(token))


def _span(token: Token) -> Span:
    assert token.start_pos is not None and token.end_pos is not None
    return Span(token.start_pos, token.end_pos)
