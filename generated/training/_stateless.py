# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body f36cb2114d02 codegen 1
"""What the stateless caches of this package have in common: for training and scoring, one pass from offset 0."""

from __future__ import annotations

from typing import Any

import torch

from ._cache import Cache, Constant
from ._checks import (
    check_tensor,
    columns_of,
    one_a_row,
    usable_device,
    whole_number,
)
from ._columns import Columns
from ._masks import Masks


class StatelessCache(Cache):
    """Nothing is stored: an append hands k and v on to its read and leaves the cache as it found it."""

    capacity = Constant(None)
    offset = Constant(0)
    nbytes = Constant(0)

    STATELESS = True
    READ: type

    def __init__(
        self,
        batch_size: int,
        *,
        device: Any = "cpu",
        dtype: torch.dtype | None = None,
        backend: str = "auto",
        masks: Masks | None = None,
        row_lengths: Any = None,
        capacity: int | None = None,
    ) -> None:
        """`row_lengths`: the real positions of each row of a right-padded batch; None when unpadded.

        Raises ValueError for a value out of range, ImportError for a backend named that cannot run here.
        """
        if capacity is not None:
            raise ValueError(
                f"capacity must be left out, got {capacity!r}: a stateless cache stores nothing"
            )
        self._set_up(batch_size, device, dtype, backend, masks)
        self._row_lengths = (
            None if row_lengths is None else one_a_row(row_lengths, "row_lengths", self._batch_size)
        )

    row_lengths = property(
        lambda self: self._row_lengths, doc="Real positions of each row, or None."
    )
    offsets = property(lambda self: (0,) * self._batch_size, doc="Always 0: nothing is stored.")

    # -- appends

    def append_decode(self, k: torch.Tensor, v: torch.Tensor) -> Any:
        """One column a row, k [B, Hkv, 1, Dk] and v [B, Hkv, 1, Dv]: each query sees its own key."""
        return self._append(k, v, 1)

    def append_window(self, k: torch.Tensor, v: torch.Tensor) -> Any:
        """The whole sequence, k [B, Hkv, L, Dk] and v [B, Hkv, L, Dv]; borrowed until backward has run."""
        return self._append(k, v, columns_of(k, self.key_dim))

    def _append(self, k: torch.Tensor, v: torch.Tensor, width: int) -> Any:
        rows, heads = self._batch_size, self.kv_heads
        check_tensor(k, "k", (rows, heads, width, self.key_dim), self._dtype, self._device)
        check_tensor(v, "v", (rows, heads, width, self.value_dim), self._dtype, self._device)
        if self._row_lengths is not None and max(self._row_lengths) > width:
            raise ValueError(
                f"row_lengths {list(self._row_lengths)} must be at most the {width} columns appended"
            )
        return self.READ(self, self._columns(width), (k, v))

    def _columns(self, width: int) -> Columns:
        starts = (0,) * self._batch_size
        if self._row_lengths is None:
            return Columns(starts, starts, (width,) * self._batch_size, width)
        return Columns(starts, starts, tuple(min(n, width) for n in self._row_lengths), width)

    def positions(self, columns: int) -> torch.Tensor:
        """int64 [B, columns]: 0, 1, 2, ..; 0 at padding."""
        return self._columns(whole_number(columns, "columns", at_least=0)).positions(
            0, self._device
        )

    # -- what has no meaning without stored tokens

    def _settled(self, call: str) -> None:
        """Nothing is ever prepared."""

    def _check_trim(self, n: Any, bypass: bool) -> tuple[int, ...]:
        return one_a_row(n, "n", self._batch_size)

    def reset(self) -> None:
        """Nothing to forget."""

    def finalize_prefill(self) -> None:
        """Nothing to end."""

    def sync(self) -> None:
        """Nothing to bring up to date."""

    def is_trimmable(self, n: Any = 1) -> bool:
        """True: nothing is stored, so nothing can be in the way."""
        one_a_row(n, "n", self._batch_size)
        return True

    def trim(self, n: Any, bypass: bool = False) -> None:
        """Nothing to drop."""
        one_a_row(n, "n", self._batch_size)

    def _check_prefill(self, lengths: Any, left_padding: Any) -> None:
        raise self._refusal("prepare_prefill", "give `row_lengths` to the constructor")

    def _row_numbers(self, rows: Any, call: str) -> list[int]:
        raise self._refusal(call)

    def prepare_prefill(self, lengths: Any, left_padding: Any = None) -> None:
        self._check_prefill(lengths, left_padding)

    def extract_row(self, row: int) -> Any:
        raise self._refusal("extract_row")

    def filter_rows(self, rows: Any) -> None:
        raise self._refusal("filter_rows")

    @classmethod
    def merge_rows(cls, caches: Any) -> Any:
        raise cls._refusal("merge_rows")

    def clone(self, lazy: bool = False) -> Any:
        raise self._refusal("clone")

    def state_dict(self) -> dict[str, Any]:
        raise self._refusal("state_dict")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise self._refusal("load_state_dict")

    def __getstate__(self) -> dict[str, Any]:
        raise self._refusal("a copy")

    @classmethod
    def _refusal(
        cls, call: str, instead: str = "make a new cache; it costs nothing"
    ) -> RuntimeError:
        return RuntimeError(
            f"{call} is not for {cls.__name__}: the policy is `stateless` and stores nothing; {instead}"
        )

    def to(self, device: Any) -> Any:
        """Expect tensors on another device from now on; returns the cache."""
        device = usable_device(device)
        self._backend, self._kernels = self._open(self._batch_size, device)
        self._device = device
        return self

    def __repr__(self) -> str:
        lengths = "" if self._row_lengths is None else f", row_lengths {list(self._row_lengths)}"
        return (
            f"{type(self).__name__}({self._batch_size} rows{lengths}, {self._backend},"
            f" {self._dtype} on {self._device}, stateless)"
        )
