"""The TextMate grammar of editors/vscode. `python -m kvgen.highlight.textmate` prints it; a test compares."""

from __future__ import annotations

import json
from typing import Any

from kvgen.highlight.vocabulary import Vocabulary, any_of, vocabulary

_BLANK = r"[ \t\f]+"


def textmate() -> str:
    """The grammar as JSON text."""
    return json.dumps(_grammar(vocabulary()), indent=2) + "\n"


def _grammar(words: Vocabulary) -> dict[str, Any]:
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "kvgen policy",
        "scopeName": "source.kv",
        "fileTypes": ["kv"],
        "firstLineMatch": rf"^{words.version}\s+[0-9]",
        "patterns": [_include(name) for name in _PARTS],
        "repository": {
            "comment": _match("comment.line.number-sign.kv", words.comment),
            "version": _captured(
                rf"\b({words.version}){_BLANK}([0-9]+)\b",
                "keyword.control.version.kv",
                "constant.numeric.kv",
            ),
            # Words are not reserved: what stands behind `policy`, `model` or `from` is a name.
            "declaration": _captured(
                rf"\b({'|'.join(words.declarations)}){_BLANK}({words.name})"
                rf"(?:{_BLANK}(from){_BLANK}({words.name}))?",
                "storage.type.kv",
                "entity.name.type.kv",
                "storage.modifier.kv",
                "entity.other.inherited-class.kv",
            ),
            "clause": _match("keyword.other.clause.kv", any_of(words.clauses)),
            "option": _match("support.constant.option.kv", any_of(words.options)),
            "number": _match("constant.numeric.kv", words.number),
            "name": _match("entity.name.type.kv", rf"\b{words.name}"),
            "sign": _match("keyword.operator.kv", "[*,]"),
        },
    }


_PARTS = ("comment", "version", "declaration", "clause", "option", "number", "name", "sign")


def _include(name: str) -> dict[str, str]:
    return {"include": f"#{name}"}


def _match(scope: str, pattern: str) -> dict[str, str]:
    return {"name": scope, "match": pattern}


def _captured(pattern: str, *scopes: str) -> dict[str, Any]:
    captures = {str(i): {"name": scope} for i, scope in enumerate(scopes, 1)}
    return {"match": pattern, "captures": captures}


if __name__ == "__main__":
    print(textmate(), end="")
