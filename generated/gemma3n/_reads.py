# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body eea8b59cb5f1 codegen 1
"""What the columns of one append see, as it was then."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._checks import shown
from ._columns import Columns
from ._storage import Overwritten, Storage


class Read:
    """Nothing is computed before `attend`, which a policy's own read adds.

    A kernel looks at `columns`, and at `new`: the (keys, values) of these columns, or None where they are in storage.
    """

    __slots__ = ("__weakref__", "columns", "kernels", "masks", "new")

    query_heads: int
    key_dim: int

    def __init__(self, cache: Any, columns: Columns, new: Any) -> None:
        self.columns, self.new = columns, new
        self.kernels, self.masks = cache._kernels, cache._masks

    def close(self) -> None:
        """Let the snapshot go. Closing twice is fine."""
        self.kernels = self.new = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _check(self, q: torch.Tensor, scale: float | None) -> None:
        if self.kernels is None:
            raise RuntimeError("this read was closed: attend before closing it, or append again")
        columns = self.columns
        want = (len(columns.ends), self.query_heads, columns.width, self.key_dim)
        if not isinstance(q, torch.Tensor) or q.shape != want:
            raise ValueError(f"q must be {list(want)}, a query a column, got {shown(q)}")
        dtype, device = self.kernels.dtype, self.kernels.device
        if (q.dtype is not dtype and q.dtype is not torch.float32) or q.device != device:
            raise ValueError(
                f"q must be {dtype} or torch.float32 on {device}, got {q.dtype} on {q.device};"
                " convert it first"
            )
        if scale is not None:
            self._check_scale(scale)

    def _check_scale(self, scale: Any) -> None:
        if not isinstance(scale, (int, float)) or not math.isfinite(scale) or scale <= 0:
            raise ValueError(f"scale must be a finite number above 0, or None, got {scale!r}")

    def __repr__(self) -> str:
        if self.kernels is None:
            return f"{type(self).__name__}(closed)"
        return f"{type(self).__name__}({self.columns.width} columns, rows at {self.columns.ends})"


class StoredRead(Read):
    """A snapshot: the same answer after later appends, trims and row changes, and after the end of its cache.

    `keys` and `values` are the planes as they were at the append, with its columns unless they are in `new`.
    """

    __slots__ = ("kept", "overwritten", "storage")

    def __init__(self, cache: Any, columns: Columns, new: Any) -> None:
        self.columns, self.new = columns, new
        self.kernels, self.masks = cache._kernels, cache._masks
        self.storage: Storage | None = cache._storage
        self.overwritten: list[Overwritten] = []
        self.kept = 0  # tokens in `overwritten`

    def close(self) -> None:
        """Let the snapshot go. Closing twice is fine."""
        super().close()
        self.storage, self.overwritten = None, []

    @property
    def keys(self) -> torch.Tensor:
        return self.planes().keys

    @property
    def values(self) -> torch.Tensor:
        return self.planes().values

    @property
    def slots(self) -> int:
        """This read looks at slots below."""
        columns = self.columns
        return min(self.storage.slots, max(columns.ends if self.new is None else columns.firsts))

    def planes(self) -> Storage:
        """The storage as it was at the append."""
        if self.overwritten:
            self.rewind()
        return self.storage

    def rewind(self) -> None:
        """If tokens were overwritten since the append, go on with a copy that has them."""
        if self.overwritten:
            self.storage, self.overwritten = self.storage.rewound(self.overwritten), []
