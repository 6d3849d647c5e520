# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body cf15b93fed5f codegen 1
"""What one layer's append leaves: its reads, and what it takes to take columns back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ._hf_columns import Padding
from ._hf_fit import Call

UNDO = 256  # columns of an append that a ring shorter than them can be asked to take back


class Reads:
    """The reads of one append, each with its number of columns; two if it was made in two parts."""

    def __init__(self, *parts: tuple[int, Any]) -> None:
        self.parts = parts

    def attend(self, q: torch.Tensor, call: Call) -> torch.Tensor:
        """Queries of all columns, or of the last ones, where a model needs no others' logits."""
        missing = sum(width for width, _ in self.parts) - q.shape[2]
        if missing:
            q = torch.cat([q.new_zeros(*q.shape[:2], missing, q.shape[3]), q], 2)
            return self.attend(q, call)[:, :, missing:]
        given = {} if call.sink_logits is None else {"sink_logits": call.sink_logits}
        if len(self.parts) == 1:
            return self.parts[0][1].attend(q, scale=call.scaling, **given)
        queries = q.split([width for width, _ in self.parts], dim=2)
        outs = [
            read.attend(x, scale=call.scaling, **given) for (_, read), x in zip(self.parts, queries)
        ]
        return torch.cat(outs, 2)


class Step(NamedTuple):
    """What a layer's last decode step was like. One that is like it needs no more checks."""

    layer: int
    cache: Any
    keys: torch.Size
    values: torch.Size
    call: tuple[Any, ...]  # scaling, softcap, whether there are sink logits, window


class Undo:
    """A layer's state before its last columns, and these."""

    def __init__(self, state: dict[str, Any], k: torch.Tensor, v: torch.Tensor) -> None:
        self.state, self.k, self.v = state, k, v
        self.columns = k.shape[2]

    def without(self, cache: Any, columns: int) -> None:
        """Bring the cache to where it was, and append all but the last columns again."""
        cache.load_state_dict(self.state)
        kept = self.columns - columns
        cache.append_window(self.k[:, :, :kept], self.v[:, :, :kept])


def append_padded(cache: Any, k: torch.Tensor, v: torch.Tensor, padding: Padding) -> Any:
    cache.prepare_prefill(padding.lengths, padding.left)
    try:
        return cache.append_window(k, v)
    finally:
        cache.finalize_prefill()
