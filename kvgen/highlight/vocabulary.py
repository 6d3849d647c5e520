"""The words of the language by what they are for. The one list behind both highlighters and the editor's completion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`options` are the words that neither begin a file, nor a declaration, nor a clause."""

    version: str
    declarations: tuple[str, ...]
    clauses: tuple[str, ...]
    options: tuple[str, ...]
    name: str
    number: str
    comment: str


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    from kvgen.grammar import grammar
    from kvgen.words import words

    known, patterns = words(), grammar().patterns
    declarations = tuple(known.clauses)
    clauses = tuple(word for kind in known.clauses.values() for word in kind)
    taken = {"kvgen", *declarations, *clauses}
    return Vocabulary(
        version="kvgen",
        declarations=declarations,
        clauses=clauses,
        options=tuple(word for word in known.types if word not in taken),
        name=patterns["NAME"],
        number=f"(?:{patterns['DECIMAL']}|{patterns['INTEGER']})",
        comment=patterns["COMMENT"],
    )


def any_of(words: tuple[str, ...]) -> str:
    """A pattern of whole words: no part of a longer one, nor of something that is none."""
    return rf"\b(?:{'|'.join(words)})\b(?![.+-])"
