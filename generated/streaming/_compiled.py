# Written by kvgen from streaming.kv and yours to keep: kvgen claims no right to it. Edit streaming.kv.
# kvgen: streaming.kv source e0ad27c66182 body 919fd78981c5 codegen 1
"""Caches inside torch.compile: custom operators, and a cache's number in a tensor in place of the cache.

A graph must not hold what a step changes: offsets, reads, planes that grow. So each cache has a token, int64
[number, appends], which is all that a graph sees of it; the operators find the cache by its number and do what they do
outside of a graph. `append` writes to the token, so that appends stay in order, and returns a ticket, [number, appends],
with which `attend` finds the read of that append. A read lives as long as its ticket.
"""

from __future__ import annotations

import itertools
import re
import weakref
from typing import Any

import torch

TOKENS = "Tensor(a!) token, Tensor k, Tensor v, bool decode"
COLUMNS = "Tensor token, Device device, SymInt rows, SymInt columns"
QUERY = "Tensor ticket, Tensor q, float? scale, Tensor? sink_logits, SymInt value_dim"
# A replayed graph runs no Python, so the operators must stay outside of what `mode="reduce-overhead"` captures.
TAGS = [tag for tag in [getattr(torch.Tag, "cudagraph_unsafe", None)] if tag is not None]

_numbers = itertools.count(1)
_caches: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_reads: weakref.WeakValueDictionary[tuple[int, int], Any] = weakref.WeakValueDictionary()


@torch.inference_mode(False)  # it outlives the block it was made in
def token_of(cache: Any) -> torch.Tensor:
    """A new token, by which operators find this cache as long as it lives."""
    number = next(_numbers)
    _caches[number] = cache
    return torch.tensor([number, 0])


def found_by(token: torch.Tensor) -> Any:
    cache = _caches.get(int(token[0]))
    if cache is None:
        raise RuntimeError("the cache of this compiled step is gone: give the step another one")
    return cache


class CompiledRead:
    """The read of an append inside torch.compile."""

    __slots__ = ("_ticket", "_value_dim")

    def __init__(self, ticket: torch.Tensor, value_dim: int) -> None:
        self._ticket, self._value_dim = ticket, value_dim

    def attend(
        self,
        q: torch.Tensor,
        scale: float | None = None,
        return_lse: bool = False,
        sink_logits: torch.Tensor | None = None,
    ) -> Any:
        """As outside of torch.compile."""
        if return_lse:
            return OPERATORS.attend_lse(self._ticket, q, scale, sink_logits, self._value_dim)
        return OPERATORS.attend(self._ticket, q, scale, sink_logits, self._value_dim)

    def close(self) -> None:
        """It goes when the graph has no more use for it."""

    def __enter__(self) -> CompiledRead:
        return self

    def __exit__(self, *_: Any) -> None:
        """It goes when the graph has no more use for it."""


# -- what the operators do


def append(token: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decode: bool) -> torch.Tensor:
    cache = found_by(token)
    read = cache.append_decode(k, v) if decode else cache.append_window(k, v)
    token[1] += 1
    ticket = token.clone()
    ticket.read = read  # which lives as long
    _reads[tuple(ticket.tolist())] = read
    return ticket


def read_of(ticket: torch.Tensor) -> Any:
    read = _reads.get(tuple(ticket.tolist()))
    if read is None:
        raise RuntimeError("this read is gone: attend in the graph that appended")
    return read


def attend(ticket, q, scale, sink_logits, value_dim) -> torch.Tensor:
    return read_of(ticket).attend(q, scale, sink_logits=sink_logits)


def attend_lse(ticket, q, scale, sink_logits, value_dim) -> tuple[torch.Tensor, torch.Tensor]:
    return read_of(ticket).attend(q, scale, return_lse=True, sink_logits=sink_logits)


def positions(token: torch.Tensor, device: Any, rows: int, columns: int) -> torch.Tensor:
    return found_by(token).positions(columns)


# -- what they would return


def fake_append(token, k, v, decode) -> torch.Tensor:
    return torch.empty_like(token)


def fake_attend(ticket, q, scale, sink_logits, value_dim) -> torch.Tensor:
    return q.new_empty((*q.shape[:3], value_dim))


def fake_attend_lse(ticket, q, scale, sink_logits, value_dim) -> tuple[torch.Tensor, torch.Tensor]:
    out = fake_attend(ticket, q, scale, sink_logits, value_dim)
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


def fake_positions(token, device, rows, columns) -> torch.Tensor:
    return torch.empty((rows, columns), dtype=torch.int64, device=device)


# -- their names


def _registered() -> Any:
    """The operators, under a name that no other package or copy of this one in the process has."""
    name = "kvgen_" + re.sub(r"\W", "_", __package__ or "")
    for copy in itertools.count(1):
        try:
            library = torch.library.Library(name if copy == 1 else f"{name}_{copy}", "DEF")
        except RuntimeError:  # the name is taken
            continue
        break
    for schema, does, returns in (
        (f"append({TOKENS}) -> Tensor", append, fake_append),
        (f"attend({QUERY}) -> Tensor", attend, fake_attend),
        (f"attend_lse({QUERY}) -> (Tensor, Tensor)", attend_lse, fake_attend_lse),
        (f"positions({COLUMNS}) -> Tensor", positions, fake_positions),
    ):
        operator = library.define(schema, tags=TAGS)
        library.impl(operator, does, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{operator}", returns, lib=library)
    return library


LIBRARY = _registered()
OPERATORS = getattr(torch.ops, LIBRARY.ns)
