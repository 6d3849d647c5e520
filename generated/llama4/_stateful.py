# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body 623383300cf5 codegen 1
"""What the stateful caches of this package have in common: checks, offsets, prepared prefills, moves, graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from ._cache import Cache
from ._checks import check_tensor, one_a_row, usable_device, whole_number
from ._columns import Columns
from ._compiled import OPERATORS, CompiledRead, token_of
from ._masks import Masks
from ._rows import RowMethods
from ._state import SavedState
from ._storage import Storage

# left padding and tokens still to come, row by row
Prefill = tuple[tuple[int, ...], tuple[int, ...]]

GRADIENTS = (
    "k and v need gradients and this cache stores them: train with a `stateless` policy, or append"
    " under torch.no_grad()"
)


class StatefulCache(RowMethods, SavedState, Cache):
    """A policy's class adds its storage, its appends and what may be taken back.

    A row is a few host integers, the tuples that `PER_ROW` names: its next position, and what its policy must know.
    """

    PER_ROW: tuple[str, ...] = ("_offsets",)

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
        """`batch_size` rows on `device`, of the policy's dtype if None. See the class for what is stored.

        Raises ValueError for a value out of range, ImportError for a backend named that cannot run here.
        """
        if row_lengths is not None:
            raise ValueError(
                "row_lengths belongs to stateless caches; here prepare_prefill says where padding is"
            )
        self._set_capacity(capacity)
        self._set_up(batch_size, device, dtype, backend, masks)
        self._start()
        self._storage = self._new_storage(self._batch_size)
        self._token = token_of(self)

    row_lengths = property(lambda self: None, doc="None: of stateless caches only.")
    offsets = property(lambda self: self._offsets, doc="The next position of each row.")
    offset = property(lambda self: max(self._offsets), doc="The largest of `offsets`.")
    nbytes = property(lambda self: self._storage.nbytes, doc="Bytes of stored keys and values.")

    def _set_capacity(self, capacity: int | None) -> None:
        if capacity is not None:
            raise ValueError(
                f"capacity must be left out, got {capacity!r}: the policy decides how many slots a row has"
            )

    def _new_storage(self, rows: int) -> Storage:
        heads, slots = self.kv_heads, self._slots()
        dims = self.key_dim, self.value_dim
        return Storage.zeros(rows, heads, slots, *dims, self._dtype, self._device)

    def _start(self) -> None:
        """Nothing appended, nothing prepared."""
        self._prefill: Prefill | None = None
        for name in self.PER_ROW:
            setattr(self, name, (0,) * self._batch_size)

    def reset(self) -> None:
        """Forget all tokens, and a prepared prefill. Reads that are held keep theirs."""
        self._storage.detach()
        self._storage.keys.zero_()
        self._storage.values.zero_()
        self._start()
        self._tell_kernels()

    # -- what is handed in

    def _check(self, k: torch.Tensor, v: torch.Tensor, width: int) -> None:
        rows, heads, dtype, device = self._batch_size, self.kv_heads, self._dtype, self._device
        keys, values = (rows, heads, width, self.key_dim), (rows, heads, width, self.value_dim)
        if not (
            isinstance(k, Tensor)
            and isinstance(v, Tensor)
            and k.shape == keys
            and v.shape == values
            and k.dtype is v.dtype is dtype
            and k.device == v.device == device
        ):
            check_tensor(k, "k", keys, dtype, device)
            check_tensor(v, "v", values, dtype, device)
        if (k.requires_grad or v.requires_grad) and torch.is_grad_enabled():
            raise RuntimeError(GRADIENTS)

    def _compiled(self, k: Tensor, v: Tensor, decode: bool) -> CompiledRead:
        """An append inside torch.compile; the operator checks shapes and dtypes when it runs."""
        for x, name in ((k, "k"), (v, "v")):
            if not isinstance(x, Tensor):
                raise ValueError(f"{name} must be a tensor, got a {type(x).__name__}")
        if (k.requires_grad or v.requires_grad) and torch.is_grad_enabled():
            raise RuntimeError(GRADIENTS)
        return CompiledRead(OPERATORS.append(self._token, k, v, decode), self.value_dim)

    def _counts(self, n: Any, name: str) -> tuple[int, ...]:
        return one_a_row(n, name, self._batch_size)

    def _settled(self, call: str) -> None:
        if self._prefill is not None:
            raise RuntimeError(
                f"{call} is not allowed during a prepared prefill; call finalize_prefill() first"
            )

    # -- prepared prefills

    def prepare_prefill(self, lengths: Any, left_padding: Any = None) -> None:
        """The coming append_window columns hold, for row r, left_padding[r] padding columns, then lengths[r] tokens,
        then padding. Any number of appends of any size may bring them."""
        self._prefill = self._check_prefill(lengths, left_padding)

    def _check_prefill(self, lengths: Any, left_padding: Any) -> Prefill:
        self._settled("a second prepare_prefill")
        lengths = self._counts(lengths, "lengths")
        left = self._counts(0 if left_padding is None else left_padding, "left_padding")
        self._allow_padding(left)
        return left, lengths

    def finalize_prefill(self) -> None:
        """End a prepared prefill, also early: what was appended counts."""
        self._prefill = None

    def _allow_padding(self, left: tuple[int, ...]) -> None:
        """Refuse left padding where the policy has none."""

    def _coming(self, width: int) -> Columns:
        """Where the next `width` columns lie."""
        firsts = self._offsets
        if self._prefill is None:
            return Columns(firsts, firsts, tuple([first + width for first in firsts]), width)
        skips = [min(left, width) for left in self._prefill[0]]
        tokens = [min(left, width - skip) for left, skip in zip(self._prefill[1], skips)]
        starts = tuple(first - skip for first, skip in zip(firsts, skips))
        return Columns(starts, firsts, tuple(first + n for first, n in zip(firsts, tokens)), width)

    def _advance(self, columns: Columns) -> None:
        """The columns are in the cache."""
        if self._prefill is not None:
            left, lengths = self._prefill
            skips = [first - start for first, start in zip(columns.firsts, columns.starts)]
            self._prefill = (
                tuple(n - skip for n, skip in zip(left, skips)),
                tuple(n - done for n, done in zip(lengths, columns.tokens())),
            )
        self._offsets = columns.ends

    def positions(self, columns: int) -> torch.Tensor:
        """int64 [B, columns]: the positions of the next columns, for the rotary embedding; 0 at padding."""
        if is_dynamo_compiling():
            return OPERATORS.positions(self._token, self._device, self._batch_size, columns)
        return self._coming(whole_number(columns, "columns", at_least=0)).positions(0, self._device)

    # -- taking tokens back

    def trim(self, n: Any, bypass: bool = False) -> None:
        """Drop the last n tokens of each row, a number or one a row; all rows or none.

        Exact, or a RuntimeError. `bypass` asserts the rollback of a verify window instead of asking.
        """
        self._settled("trim")
        counts = self._check_trim(n, bypass)
        if any(counts):
            self._take_back(counts)
            self._tell_kernels()

    # -- copies and moves

    def __getstate__(self) -> dict[str, Any]:
        fields = dict(self.clone().__dict__)
        storage = fields.pop("_storage")
        del fields["_kernels"], fields["_masks"], fields["_token"]
        return {**fields, "planes": (storage.keys, storage.values)}

    @torch.inference_mode(False)
    def __setstate__(self, fields: dict[str, Any]) -> None:
        planes = fields.pop("planes")
        self.__dict__.update(fields)
        self._token = token_of(self)
        self._masks, self._storage = Masks(), Storage(*planes)
        self._backend, self._kernels = self._open(self._batch_size, self._device)

    @torch.inference_mode(False)
    def to(self, device: Any) -> Any:
        """Move to a device, in place; returns the cache. Reads that are held stay where they are."""
        self._settled("to")
        device = usable_device(device)
        if device == self._device:
            return self
        self._backend, self._kernels = self._open(self._batch_size, device)
        cache = self._written()
        self._storage = Storage(cache._storage.keys.to(device), cache._storage.values.to(device))
        for name in self.PER_ROW:
            setattr(self, name, getattr(cache, name))
        self._device = device
        self._after_row_change()
        return self

    # -- captured graphs

    def _tell_kernels(self) -> None:
        """Kernels that keep the rows' places on the device learn where the rows stand now."""
        place = getattr(self._kernels, "place", None)
        if place is not None:
            place(self._offsets)

    def sync(self) -> None:
        """Bring the host's view up to date after replays of a captured graph. RuntimeError if a replay found a row full."""
        moved = getattr(self._kernels, "moved", None)
        if moved is None:
            return
        steps, full = moved()
        if any(steps):
            self._advance_by(steps)
        if full:
            raise RuntimeError(
                f"rows {full} are full, replays wrote nothing past their slots: reset, trim or"
                " filter_rows, or declare more slots"
            )

    def _advance_by(self, steps: tuple[int, ...]) -> None:
        """Replays stored so many tokens in each row, of which the host knew nothing."""
        self._offsets = tuple(offset + step for offset, step in zip(self._offsets, steps))
        self._after_row_change()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._batch_size} rows at {list(self._offsets)}, {self._backend},"
            f" {self._dtype} on {self._device}, {self.nbytes:,} bytes)"
        )
