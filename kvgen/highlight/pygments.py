"""The Pygments lexer `kv`, for documents and terminals: an entry point of this package, loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pygments.lexer import (
    RegexLexer,
    bygroups,  # pyright: ignore[reportUnknownVariableType] (its stub has no types)
)
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, Text, Whitespace

from kvgen.highlight.vocabulary import any_of, vocabulary

_words = vocabulary()
_gap = r"([ \t\f\r\n]+)"


class KvLexer(RegexLexer):
    """Policy files, and pieces of them: a clause is known outside of a policy too."""

    name = "kvgen policy"
    aliases: ClassVar[Sequence[str]] = ["kv", "kvgen"]
    filenames: ClassVar[Sequence[str]] = ["*.kv"]
    mimetypes: ClassVar[Sequence[str]] = ["text/x-kvgen"]

    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"[ \t\f\r\n]+", Whitespace),
            (_words.comment, Comment.Single),
            (rf"({_words.version}){_gap}([0-9]+)", bygroups(Keyword.Namespace, Whitespace, Number)),
            (
                rf"({any_of(_words.declarations)}){_gap}({_words.name})",
                bygroups(Keyword.Declaration, Whitespace, Name.Class),
                "head",
            ),
            (any_of(_words.declarations), Keyword.Declaration),
            (any_of(_words.clauses), Keyword),
            (any_of(_words.options), Name.Builtin),
            (_words.number, Number),
            (_words.name, Name.Class),
            (r"[*,]", Operator),
            (r"[{}]", Punctuation),
            (r"[\w.+-]+|.", Text),
        ],
        # Behind the name of a declaration: words are not reserved, so a policy may be called `window`.
        "head": [
            (r"[ \t\f\r\n]+", Whitespace),
            (_words.comment, Comment.Single),
            (
                rf"(from){_gap}({_words.name})",
                bygroups(Keyword.Declaration, Whitespace, Name.Class),
            ),
            (r"", Text, "#pop"),
        ],
    }
