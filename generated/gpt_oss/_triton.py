# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 4845ad61b919 codegen 1
"""What the Triton kernels of all stored policies have in common: appends and reads as launches."""

from typing import Any, NamedTuple

import torch

from ._columns import Columns
from ._launch import INTERPRETED, STEP_COLUMNS, Device, Launches, aligned, capturing, itself, layout
from ._made import MadeKernels
from ._places import Places
from ._storage import Storage


class DecodeStep(NamedTuple):
    """What decode or verify steps of one kind launch: the kernel, and `merge` after it where the keys are split.

    Workspace is kept, so that a step allocates nothing but its answer.
    """

    launches: Launches
    room: "Room"
    addresses: "Room"  # of the same


class Room(NamedTuple):
    """Workspace of a step: for a log-sum-exp that nobody asked for, and for what splits hand to `merge`, their means of the
    values and the logs of their denominators.
    """

    log: Any
    parts: tuple[Any, ...]


class Found(NamedTuple):
    """What kernels take of a cache: keys, values and the rows' places, and how many slots, where that varies."""

    planes: tuple[Any, Any, Any]
    slots: tuple[int, ...]


class StoredKernels(MadeKernels):
    """Stores and attends the planes of one cache. A policy's class adds the kernels and what they are made for."""

    name: str
    grows: bool  # storage has no fixed address
    runs: Any  # of the policy: where positions are stored

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.device, self._device = device, Device(device)
        self._for(self._device, dtype)
        self._places = Places(batch_size, device)
        self._appends: dict[Any, Launches] = {}
        self._steps: dict[Any, DecodeStep] = {}

    # -- where rows stand

    def place(self, offsets: tuple[int, ...]) -> None:
        """Rows stand elsewhere now, after a trim, a row change, a reset or a load: tell the device before it goes on."""
        self._places.place(offsets)

    def moved(self) -> tuple[tuple[int, ...], list[int]]:
        """How many tokens replays have stored in each row that the host does not know of; the rows found full."""
        return self._places.moved()

    # -- appends

    def write(self, storage: Storage, k: torch.Tensor, v: torch.Tensor, columns: Columns) -> None:
        """Store the tokens of an append."""
        if columns.width == 0:
            return
        stream = self._device.stream()
        if stream is None:
            with torch.cuda.device(self._device.index):
                self.write(storage, k, v, columns)
            return
        if self.grows and capturing():
            raise RuntimeError(
                "`storage contiguous` grows and moves, so no graph can capture it: declare"
                " `storage fixed`, or a ring"
            )
        if storage.shared:
            storage.separate()
        if storage.held() and not capturing():  # a replay invalidates the reads before it
            storage.keep(columns, self.runs)
        if columns.width > STEP_COLUMNS or columns.padded:
            self._write_columns(storage, k, v, columns, stream)
            return
        (k, keys_first), (v, values_first) = layout(k), layout(v)
        places = self._places
        if columns.firsts != places.ends:
            places.place(columns.firsts)
        key = columns.width, keys_first, values_first
        at, (append,) = (self._appends.get(key) or self._append(key)).on(stream)
        planes, slots = self._find(storage, at)
        append((at(k), at(v), *planes, *slots))
        places.ends, places.columns = columns.ends, columns

    def _append(self, key: Any) -> Launches:
        rows = len(self._places.ends)
        launches = self._appends[key] = Launches((self.step_kernel(*key), (rows, 1, 1)))
        return launches

    def _write_columns(self, storage, k, v, columns, stream) -> None:
        """Any number of columns, and padding among them: at places that the host knows."""
        (k, keys_first), (v, values_first) = layout(k), layout(v)
        kernel = self.columns_kernel(keys_first, values_first)
        lines = kernel.constants["LINES"]
        grid = (-(-self.kv_heads * columns.width // lines), len(columns.ends), 1)
        planes, slots = self._tensors(storage)
        self._places.put(columns)
        kernel(grid, stream, k, v, *planes, *slots, columns.width)

    def _find(self, storage: Storage, at: Any) -> Found:
        """What a step takes of a cache. Addresses are the same at each step."""
        if at is itself:
            return self._tensors(storage)
        if storage.place is None:
            planes, slots = self._tensors(storage)
            storage.place = Found(tuple(map(at, planes)), slots)
        return storage.place

    def _tensors(self, storage: Any) -> Found:
        slots = () if self.ring else (storage.keys.shape[2],)
        return Found((storage.keys, storage.values, self._places.rows), slots)

    # -- reads

    def attend(
        self,
        read: Any,
        q: torch.Tensor,
        scale: float,
        sink_logits: torch.Tensor | None,
        return_lse: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """q [B, Hq, L, Dk] to out [B, Hq, L, Dv] in q's dtype and lse, float32 [B, Hq, L].

        Without `return_lse` lse may be None.
        """
        if INTERPRETED and q.dtype is torch.bfloat16:  # whose products the interpreter gets wrong
            out, lse = self.attend(read, q.float(), scale, sink_logits)
            return out.to(q.dtype), lse
        stream = self._device.stream()
        if stream is None:
            with torch.cuda.device(self._device.index):
                return self.attend(read, q, scale, sink_logits, return_lse)
        columns = read.columns
        few = read.new is None and (self.ring or columns.width <= STEP_COLUMNS)
        lse = q.new_empty(q.shape[:3], dtype=torch.float32) if return_lse or not few else None
        if scale <= 0:
            q, scale = q * scale, 1.0  # kernels take the maximum before they scale
        q, columns_first = layout(q)
        if self.key_dim == self.value_dim and not columns_first:
            out = torch.empty_like(q)  # the quickest way to memory
        else:
            out = q.new_empty(*q.shape[:3], self.value_dim)
        if columns.width == 0:
            return out, lse
        logits = () if sink_logits is None else (aligned(sink_logits.detach().float()),)
        attend = self._decode if few else self._window
        attend(read, stream, q, columns_first, scale, logits, out, lse)
        return out, lse

    def _decode(self, read, stream, q, columns_first, scale, logits, out, lse) -> None:
        """Attend columns that are in storage, a few of them."""
        columns = read.columns
        key = columns.width, columns_first, columns.padded, scale, q.dtype
        step = self._steps.get(key) or self._prepare(key)
        at, launches = step.launches.on(stream)
        planes, slots = self._find(read.planes(), at)
        if columns is not self._places.columns:
            planes = *planes[:2], self._places.find(columns)
        log, parts = step.room if at is itself else step.addresses
        answer = at(out), log if lse is None else at(lse)
        if not parts:
            launches[0]((at(q), *planes, *logits, *answer, *slots))
            return
        decode, merge = launches
        decode((at(q), *planes, *logits, *parts, *slots))
        merge((*parts, *logits, *answer))

    def _prepare(self, key: Any) -> DecodeStep:
        """What steps of one kind launch, and their workspace."""
        width, *_, dtype = key
        kernel, rows = self.decode_kernel(*key), len(self._places.ends)
        splits, blocks = kernel.constants["SPLITS"], kernel.constants["BLOCKS"]
        launches = [(kernel, (rows, self.kv_heads * blocks, splits))]
        lines, parts = rows * self.query_heads * width, ()
        if splits > 1:
            launches.append((self.merge_kernel(width, dtype), (rows, self.query_heads, width)))
            parts = self._floats(lines * splits * self.value_dim), self._floats(lines * splits)
        room = Room(self._floats(lines), parts)
        addresses = Room(room.log.data_ptr(), tuple([x.data_ptr() for x in parts]))
        step = self._steps[key] = DecodeStep(Launches(*launches), room, addresses)
        return step

    def _floats(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.float32, device=self.device)

    def _window(self, read, stream, q, columns_first, scale, logits, out, lse) -> None:
        """Attend columns beside the ring, or many in storage."""
        columns = read.columns
        held = self.ring and max(columns.firsts) > 0
        kernel = self.window_kernel(columns_first, held, scale, q.dtype)
        grid = (-(-columns.width // kernel.constants["ROWS"]), self.query_heads, len(columns.ends))
        keys, values, new = read.keys, read.values, read.new or ()
        slots = () if self.ring else (keys.shape[2],)
        places = self._places.find(columns)
        planes = keys, values, *new, places
        kernel(grid, stream, q, *planes, *logits, out, lse, *slots, columns.width)
