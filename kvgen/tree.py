"""Lark's tree to ours: the only module that knows how Lark spells a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kvgen.grammar import Token
from kvgen.source import Span
from kvgen.syntax import Clause, Declaration, File, Word

if TYPE_CHECKING:
    from lark import Tree

    Node = Tree[Token]


def build(tree: object, comments: tuple[Word, ...]) -> File:
    nodes = cast("list[Node]", cast("Any", tree).children)
    version, span = None, Span(0, 0)
    if nodes and nodes[0].data == "version":
        keyword, number = _tokens(nodes[0])
        version, span = _word(number), Span(keyword.start, number.end)
        nodes = nodes[1:]
    return File(version, span, tuple(_declaration(node) for node in nodes), comments)


def _declaration(node: Node) -> Declaration:
    children = node.children
    brace = next(i for i, child in enumerate(children) if getattr(child, "type", "") == "LBRACE")
    keyword, name, *parent, opening = cast("list[Token]", children[: brace + 1])
    closing = cast("Token", children[-1])
    return Declaration(
        kind=str(node.data),
        span=Span(keyword.start, closing.end),
        name=_word(name),
        parent=_word(parent[1]) if parent else None,
        opening=opening.span,
        closing=closing.span,
        clauses=tuple(_clause(child) for child in children[brace + 1 : -1]),
    )


def _clause(node: Node | Token) -> Clause:
    if isinstance(node, Token):  # BROKEN
        return Clause(node.text, node.span, node.span, broken=True)
    keyword, *rest = _tokens(node)
    start = keyword.span
    span = Span(start.start, rest[-1].end if rest else start.end)
    return Clause(keyword.text, span, start, tuple(_word(token) for token in rest))


def _tokens(node: Node) -> list[Token]:
    return cast("list[Token]", node.children)


def _word(token: Token) -> Word:
    return Word(token.text, Span(token.start, token.end))
