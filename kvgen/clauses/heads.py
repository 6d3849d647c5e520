"""heads query N kv M"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen.clauses.kind import Kind
from kvgen.clauses.numbers import count
from kvgen.diagnostics import Label, Problems
from kvgen.syntax import Clause


@dataclass(frozen=True, slots=True)
class Heads:
    query: int
    kv: int


def _read(clause: Clause, problems: Problems) -> Heads | None:
    query_word, kv_word = clause.numbers()
    query, kv = count(clause, query_word, problems), count(clause, kv_word, problems)
    if query is None or kv is None:
        return None
    if query % kv == 0:
        return Heads(query, kv)
    problems.add(
        "KV206",
        f"{query} query heads cannot share {kv} kv heads evenly",
        Label(query_word.span, f"not a multiple of {kv}"),
        "every kv head is read by the same number of query heads: make `query` a multiple of `kv`",
        Label(kv_word.span, "the kv heads"),
    )
    return None


KIND = Kind(
    "heads",
    Heads,
    ("heads query N kv M",),
    "head counts, N a multiple of M: query head h reads the keys and values of head h // (N / M)",
    "required",
    _read,
)
