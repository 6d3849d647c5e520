# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body a03f627bcb2e codegen 1
"""Loads the C++ kernels of this package and calls them: the part that all policies share."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import threading
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ._build import library_path
from ._columns import Columns
from ._storage import Runs, Storage, places

ELEMENTS = {torch.float32: "float", torch.float16: "kv::Float16", torch.bfloat16: "kv::BFloat16"}
# Numbers of keys and values: up to here a call ends before another thread would want the interpreter.
SHORT_CALL = 1 << 20
# Bytes from which on a plane is worth huge pages: reading them is up to a quarter faster.
HUGE_PLANE = 4 << 20
ADDRESS, NUMBER = ctypes.c_void_p, ctypes.c_int64


class Job(ctypes.Structure):
    """One call. `struct Job` of the C++ has the same fields in the same order and says what they mean."""

    _fields_ = [
        ("rows", NUMBER),
        ("width", NUMBER),
        ("slots", NUMBER),
        ("starts", ADDRESS),
        ("firsts", ADDRESS),
        ("ends", ADDRESS),
        ("keys", ADDRESS),
        ("values", ADDRESS),
        ("new_keys", ADDRESS),
        ("new_values", ADDRESS),
        ("key_strides", ADDRESS),
        ("value_strides", ADDRESS),
        ("overwritten", ADDRESS),
        ("query", ADDRESS),
        ("query_strides", ADDRESS),
        ("query_is_float", NUMBER),
        ("out", ADDRESS),
        ("lse", ADDRESS),
        ("sink_logits", ADDRESS),
        ("scale", ctypes.c_double),
        ("workspace", ADDRESS),
        ("workspace_bytes", NUMBER),
        ("threads", NUMBER),
    ]


# The fields from `new_keys` on, to `overwritten` and to `scale`, in one go: one by one takes longer.
TOKENS = Job.new_keys.offset
put_tokens, put_queries = struct.Struct("5q").pack_into, struct.Struct("11qd").pack_into
NO_TOKENS = 0, 0
get_num_threads = torch.get_num_threads


class Planes(NamedTuple):
    """Where the planes of a storage are, and how many numbers one has."""

    keys: int
    values: int
    numbers: int


class Library:
    """The functions of one built library, each twice: `short` ones keep the interpreter, which costs less than to let it
    go and wait for it, `long` ones let other Python threads run."""

    def __init__(self, path: str) -> None:
        self._files = ctypes.PyDLL(path), ctypes.CDLL(path)
        self.append_short, self.append_long = (
            self._function(file, "kv_append") for file in self._files
        )
        self.attend_short, self.attend_long = (
            self._function(file, "kv_attend") for file in self._files
        )
        self.instructions = self._text("kv_instructions")
        self.pool_threads = self._files[0].kv_pool_threads
        self.huge_pages = self._files[1].kv_huge_pages
        self.huge_pages.argtypes, self.huge_pages.restype = (ADDRESS, NUMBER), None

    @staticmethod
    def _function(file: Any, name: str) -> Any:
        function = getattr(file, name)
        function.argtypes, function.restype = (ADDRESS,), NUMBER
        return function

    def _text(self, name: str) -> str:
        function = getattr(self._files[0], name)
        function.restype = ctypes.c_char_p
        return function().decode()


@functools.cache
def open_library(source: Path, dtype: torch.dtype) -> Library:
    return Library(str(library_path(source, (f"KV_ELEMENT={ELEMENTS[dtype]}",))))


class CpuKernels:
    """The kernels of one cache: its job, the addresses of its rows' positions, its workspace. One call at a time."""

    name = "cpu decode+window"
    SOURCE: Path
    HEADS: int
    KEY_DIM: int
    VALUE_DIM: int
    KEEPS_PLANES: bool  # for life: then it pays to have them in huge pages
    runs: Runs

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        if device.type != "cpu":
            raise ImportError(
                f"the cpu backend works on CPU tensors, not on {device}; use backend='auto'"
            )
        self.dtype, self.device = dtype, device
        self._library = open_library(self.SOURCE, dtype)
        lock = threading.Lock()  # one call at a time; `with` would take three times as long
        self._begin, self._end = lock.acquire, lock.release
        self._positions = (NUMBER * (3 * batch_size))()
        self._strides = (NUMBER * 9)()  # of keys, values and queries that do not lie side by side
        self._put_positions = struct.Struct(f"{3 * batch_size}q").pack_into
        self._alike = self.KEY_DIM == self.VALUE_DIM
        first = ctypes.addressof(self._positions)
        self._job = Job(
            rows=batch_size,
            starts=first,
            firsts=first + 8 * batch_size,
            ends=first + 16 * batch_size,
        )
        self._address = ctypes.addressof(self._job)
        self._columns: Columns | None = None  # those that the job is about
        self._planes: Planes | None = None  # and where they are stored
        self._workspace: torch.Tensor | None = None

    def write(self, storage: Storage, k: torch.Tensor, v: torch.Tensor, columns: Columns) -> None:
        """Store the tokens of an append; reads that are still held get those that it overwrites."""
        if storage.shared:
            storage.separate()
        held = storage.held()
        if held:
            lowest_slot = 0 if max(columns.ends) > storage.slots else min(columns.firsts)
            held = [read for read in held if read.slots > lowest_slot]
        old = self._room_for(columns, storage.keys) if held else None
        self._begin()
        try:
            job = self._place(storage, columns)
            k, key_strides = self._numbers(k, 0)
            v, value_strides = self._numbers(v, 1)
            overwritten = 0 if old is None else old.data_ptr()
            put_tokens(
                job, TOKENS, k.data_ptr(), v.data_ptr(), key_strides, value_strides, overwritten
            )
            short = k.numel() < SHORT_CALL
            (self._library.append_short if short else self._library.append_long)(self._address)
        finally:
            self._end()
        if old is not None:
            storage.hand_over(held, Kept(old, columns, self))

    def _room_for(self, columns: Columns, like: torch.Tensor) -> torch.Tensor:
        tokens = len(columns.ends) * columns.width
        return like.new_empty(tokens * self.HEADS * (self.KEY_DIM + self.VALUE_DIM))

    def attend(
        self,
        read: Any,
        q: torch.Tensor,
        scale: float,
        sink_logits: torch.Tensor | None,
        return_lse: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """q [B, Hq, L, Dk] to out [B, Hq, L, Dv] in q's dtype and lse, float32 [B, Hq, L]."""
        columns, storage = read.columns, read.planes()
        q, strides = self._numbers(q, 2)
        if self._alike and not strides:
            out = torch.empty_like(q)  # the quickest way to memory
        else:
            out = q.new_empty((*q.shape[:3], self.VALUE_DIM))
        lse = q.new_empty(q.shape[:3], dtype=torch.float32) if return_lse else None
        logits = None if sink_logits is None else sink_logits.detach().float().contiguous()
        new = NO_TOKENS if read.new is None else [x.data_ptr() for x in read.new]
        self._begin()
        try:
            job = self._place(storage, columns)
            put_queries(
                job,
                TOKENS,
                *new,
                0,
                0,
                0,
                q.data_ptr(),
                strides,
                q.dtype is torch.float32,
                out.data_ptr(),
                0 if lse is None else lse.data_ptr(),
                0 if logits is None else logits.data_ptr(),
                scale,
            )
            short = columns.width * self._planes.numbers < SHORT_CALL
            attend = self._library.attend_short if short else self._library.attend_long
            while needed := attend(self._address):
                self._make_room(needed)
        finally:
            self._end()
        return out, lse

    def _place(self, storage: Storage, columns: Columns) -> Job:
        """The job of these columns: a decode step places it once, for the append and the read."""
        job = self._job
        get_num_threads()  # in a new Python thread the pool learns torch's number only when asked for it
        if columns is not self._columns:
            self._put_positions(self._positions, 0, *columns.starts, *columns.firsts, *columns.ends)
            job.width, self._columns = columns.width, columns
        planes = storage.place or self._find(storage)
        if planes is not self._planes:
            self._planes = planes
            job.keys, job.values, job.slots = planes.keys, planes.values, storage.slots
        return job

    def _find(self, storage: Storage) -> Planes:
        """Look where planes are, once."""
        keys, values = storage.keys, storage.values
        planes = storage.place = Planes(keys.data_ptr(), values.data_ptr(), keys.numel())
        if self.KEEPS_PLANES and keys.nbytes >= HUGE_PLANE:
            self._library.huge_pages(planes.keys, keys.nbytes)
            self._library.huge_pages(planes.values, values.nbytes)
        return planes

    def _numbers(self, x: torch.Tensor, which: int) -> tuple[torch.Tensor, int]:
        """`x` and the address of its strides: 0 where its numbers lie side by side. Copied if those of a column do not."""
        if x.is_contiguous():
            return x, 0
        if x.stride(-1) != 1:
            return x.contiguous(), 0
        at = 3 * which
        self._strides[at : at + 3] = x.stride()[:3]
        return x, ctypes.addressof(self._strides) + 8 * at

    def _make_room(self, needed: int) -> None:
        """A kernel that lacks workspace says how much it needs, and does nothing; it grows to that and stays."""
        self._workspace = torch.empty(needed, dtype=torch.uint8)
        self._job.workspace, self._job.workspace_bytes = self._workspace.data_ptr(), needed


class Kept:
    """Tokens that an append overwrote: keys, then values, [rows, heads, columns, dim] as the columns were."""

    __slots__ = ("_columns", "_kernels", "_old", "tokens")

    def __init__(self, old: torch.Tensor, columns: Columns, kernels: CpuKernels) -> None:
        self._old, self._columns, self._kernels = old, columns, kernels
        self.tokens = columns.width

    def put_back(self, storage: Storage) -> None:
        kernels, columns = self._kernels, self._columns
        shape = len(columns.ends), kernels.HEADS, columns.width
        end = math.prod(shape) * kernels.KEY_DIM
        keys = self._old[:end].view(*shape, kernels.KEY_DIM)
        values = self._old[end:].view(*shape, kernels.VALUE_DIM)
        for index, source, _ in places(columns, kernels.runs, keys.device):
            storage.keys[index], storage.values[index] = keys[source], values[source]
