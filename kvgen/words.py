"""What the language's words are near to, for messages about the ones it does not know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from kvgen.clauses import FORMS
from kvgen.grammar import grammar
from kvgen.nearest import Nearest

# What other tools call these things.
_FOREIGN = {
    "head_dim": "dim",
    "dims": "dim",
    "dimension": "dim",
    "head": "heads",
    "num_heads": "heads",
    "num_attention_heads": "heads",
    "precision": "dtype",
    "sliding_window": "window",
    "attention_sinks": "sinks",
    "sink_tokens": "sinks",
    "chunk_size": "chunk",
    "attention_chunk_size": "chunk",
    "softmax_scale": "scale",
    "scaling": "scale",
    "soft_cap": "softcap",
    "logit_softcap": "softcap",
    "attn_logit_softcapping": "softcap",
    "num_layers": "layers",
    "num_hidden_layers": "layers",
    "pattern": "repeat",
    "training": "stateless",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "fp32": "f32",
    "fp16": "f16",
    "half": "f16",
    "dynamic": "contiguous",
    "static": "fixed",
    "rolling": "ring",
    "rotating": "ring",
    "both": "left",
    "extends": "from",
}
_SIGNS = {"LBRACE": "`{`", "RBRACE": "`}`", "COMMA": "`,`", "STAR": "`*`", "NAME": "a name"}
_NUMBERS = {"INTEGER": "a whole number", "DECIMAL": "a number"}


@dataclass(frozen=True, slots=True)
class Words:
    """`types` maps a spelling to its token type, `clauses` a kind of declaration to its keywords in manual order."""

    types: dict[str, str]
    clauses: dict[str, tuple[str, ...]]
    forms: dict[str, tuple[str, ...]]
    any_clause: frozenset[str]
    near_clause: dict[str, Nearest]
    near_declaration: Nearest

    def clause(self, kind: str, word: str) -> tuple[int, str] | None:
        """How far the nearest clause of such a declaration is, and its keyword."""
        foreign = _FOREIGN.get(word.lower())
        if foreign in self.clauses[kind]:
            return 0, foreign
        return self.near_clause[kind].ranked(word)

    def option(self, allowed: Iterable[str], word: str) -> tuple[int, str] | None:
        """The same for the words that the grammar would take here, clauses aside."""
        options = [
            spelling
            for spelling, kind in self.types.items()
            if kind in allowed and kind not in self.any_clause
        ]
        foreign = _FOREIGN.get(word.lower())
        if foreign in options:
            return 0, foreign
        return _index(tuple(options)).ranked(word)

    def declaration(self, word: str) -> str | None:
        return self.near_declaration.of(word)

    def is_from(self, word: str) -> bool:
        return _FOREIGN.get(word.lower()) == "from" or _index(("from",)).of(word) is not None

    def expected(self, allowed: Iterable[str]) -> str:
        """What may come next, in words; where a clause may come, that is enough."""
        kinds = set(allowed)
        if kinds & self.any_clause:
            return "a clause or `}`"
        if "DECIMAL" in kinds:
            kinds -= {"INTEGER"}
        named = [text for kind, text in {**_NUMBERS, **_SIGNS}.items() if kind in kinds]
        named += [f"`{word}`" for word, kind in self.types.items() if kind in kinds]
        return " or ".join(named)


@lru_cache(maxsize=256)  # as many as the grammar has states
def _index(options: tuple[str, ...]) -> Nearest:
    return Nearest(options, 2)


@lru_cache(maxsize=1)
def words() -> Words:
    known = grammar()
    types = known.types
    clauses = {
        kind: tuple(word for word in FORMS if types[word] in first)
        for kind, first in known.clauses.items()
    }
    return Words(
        types=types,
        clauses=clauses,
        forms=FORMS,
        any_clause=frozenset(kind for first in known.clauses.values() for kind in first),
        near_clause={kind: Nearest(keywords, 2) for kind, keywords in clauses.items()},
        near_declaration=Nearest(known.clauses, 2),
    )
