# Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
# kvgen: gemma3.kv source 9c5354bdbcbb body 428a6198fb09 codegen 1
"""What the Triton kernels of all stored policies have in common: which kernel, which grid, which workspace."""

from typing import Any, NamedTuple

import torch

from ._columns import Columns
from ._launch import (
    INTERPRETED,
    STEP_COLUMNS,
    DecodePlan,
    Device,
    Kernel,
    Places,
    Target,
    TilePlan,
    aligned,
    capturing,
    layout,
    power_of_two,
)
from ._storage import Storage


class DecodeStep(NamedTuple):
    """A decode or verify step, prepared: without `merge` one split does it all."""

    kernel: Kernel
    grid: tuple[int, int, int]
    log: torch.Tensor  # room for a log-sum-exp that nobody asked for
    merge: Kernel | None = None
    merge_grid: tuple[int, int, int] = (1, 1, 1)
    parts: tuple[torch.Tensor, ...] = ()


class StoredKernels:
    """Stores and attends the planes of one cache. A policy's class adds the kernels and what they are made for."""

    name: str
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    ring: bool  # columns wrap, and more of them than fit wait beside the ring
    plans: dict[tuple[str, int], tuple[DecodePlan, TilePlan]]  # by target and bytes an element
    grows: bool  # storage has no fixed address
    runs: Any  # of the policy: where positions are stored
    append_step: Any
    append_columns: Any
    decode: Any
    merge: Any
    window: Any

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._device = Device(device)
        self._places = Places(batch_size, device)
        self._kernels: dict[Any, Kernel] = {}
        self._steps: dict[Any, DecodeStep] = {}

    @classmethod
    def ahead(cls, target: str, dtype: torch.dtype) -> "StoredKernels":
        """Kernels for a target without a device: its `..._kernel` methods say what to compile."""
        kernels = object.__new__(cls)
        kernels._device, kernels.dtype, kernels._kernels = Target(target), dtype, {}
        return kernels

    # -- where rows stand

    def place(self, offsets: tuple[int, ...]) -> None:
        """Rows stand elsewhere now, after a trim, a row change, a reset or a load: tell the device before it goes on."""
        if len(offsets) != len(self._places.ends):
            self._places = Places(len(offsets), self._places.device)
            self._kernels, self._steps = {}, {}  # which know where the others were
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
        (k, keys_first), (v, values_first) = layout(k), layout(v)
        places = self._places
        if columns.width > STEP_COLUMNS or columns.padded:
            keys, values, slots = storage.keys, storage.values, self._slots(storage)
            places.put(columns)
            kernel = self.columns_kernel(keys_first, values_first)
            lines = kernel.constants["LINES"]
            grid = (-(-self.kv_heads * columns.width // lines), len(columns.ends), 1)
            kernel(grid, stream, k, v, keys, values, places.rows, *slots, columns.width)
            return
        if columns.firsts != places.ends:
            places.place(columns.firsts)
        kernel = self.step_kernel(columns.width, keys_first, values_first)
        beside = self._beside(kernel, storage)
        kernel.launch(len(columns.ends), 1, 1, stream, (k, v, *beside))
        places.ends, places.columns = columns.ends, columns

    def _beside(self, kernel: Kernel, storage: Any, *parts: torch.Tensor) -> tuple[Any, ...]:
        """What a kernel takes beside an append or a query: planes, the rows' places, workspace, slots where they vary.

        Once it is compiled addresses will do, which are the same at each step.
        """
        place = storage.place
        if place is not None and kernel.place is place:
            return kernel.beside
        tensors = storage.keys, storage.values, self._places.rows, *parts
        if not kernel.ready:
            return *tensors, *self._slots(storage)
        addresses = tuple([x.data_ptr() for x in tensors])
        if place is None:
            place = storage.place = addresses[:2]
        kernel.place, kernel.beside = place, (*addresses, *self._slots(storage))
        return kernel.beside

    def _slots(self, storage: Any) -> tuple[int, ...]:
        return () if self.ring else (storage.keys.shape[2],)

    def step_kernel(self, width: int, keys_first: bool, values_first: bool) -> Kernel:
        key = "step", width, keys_first, values_first
        if key not in self._kernels:
            self._kernels[key] = Kernel(
                self.append_step,
                COLUMNS=width,
                KEY_COLUMNS_FIRST=keys_first,
                VALUE_COLUMNS_FIRST=values_first,
                LINES=min(power_of_two(self.kv_heads * width), self._lines()),
                num_warps=4,
            )
        return self._kernels[key]

    def columns_kernel(self, keys_first: bool, values_first: bool) -> Kernel:
        key = "columns", keys_first, values_first
        if key not in self._kernels:
            self._kernels[key] = Kernel(
                self.append_columns,
                KEY_COLUMNS_FIRST=keys_first,
                VALUE_COLUMNS_FIRST=values_first,
                LINES=self._lines(),
                num_warps=4,
            )
        return self._kernels[key]

    def _lines(self) -> int:
        """Tokens of a head that a program of 4 warps copies at once: 8 KB of each plane."""
        line = power_of_two(max(self.key_dim, self.value_dim)) * self.dtype.itemsize
        return max(1, 8192 // line)

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
        columns, storage, places = read.columns, read.planes(), self._places
        key = len(columns.ends), columns.width, columns_first, columns.padded, scale, q.dtype
        step = self._steps.get(key) or self._prepare(key)
        lse = step.log if lse is None else lse
        beside = self._beside(step.kernel, storage, *step.parts)
        if columns is not places.columns:
            beside = *beside[:2], places.of(columns).to(places.device), *beside[3:]
        x, y, z = step.grid
        if step.merge is None:
            arguments = q, *beside[:3], *logits, out, lse, *beside[3:]
            step.kernel.launch(x, y, z, stream, arguments)
            return
        arguments = (q, *beside[:3], *logits, *beside[3:]) if logits else (q, *beside)
        step.kernel.launch(x, y, z, stream, arguments)
        sums, logs = beside[3:5] if step.merge.ready else step.parts
        x, y, z = step.merge_grid
        step.merge.launch(x, y, z, stream, (sums, logs, *logits, out, lse))

    def _prepare(self, key: Any) -> "DecodeStep":
        """What steps of one kind launch. Their workspace is kept: a step allocates nothing but its answer."""
        rows, width, *_, dtype = key
        kernel, blocks = self.decode_kernel(*key[1:])
        splits = kernel.constants["SPLITS"]
        log = self._floats(rows * self.query_heads * width)
        step = DecodeStep(kernel, (rows, self.kv_heads * blocks, splits), log)
        if splits > 1:
            merge, grid = self.merge_kernel(width, dtype), (rows, self.query_heads, width)
            lines = rows * self.query_heads * width * splits
            step = step._replace(merge=merge, merge_grid=grid, parts=self._parts(lines))
        self._steps[key] = step
        return step

    def _parts(self, lines: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What splits hand to `merge`: their means of the values, and the logs of their denominators."""
        return self._floats(lines * self.value_dim), self._floats(lines)

    def _floats(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.float32, device=self._places.device)

    def decode_kernel(self, width, columns_first, ragged, scale, dtype) -> tuple[Kernel, int]:
        key = "decode", width, columns_first, ragged, scale, dtype
        if key not in self._kernels:
            plan, lines = self._plan(dtype)[0], self.query_heads // self.kv_heads * width
            rows = min(max(16, power_of_two(lines)), plan.rows)
            self._kernels[key] = Kernel(
                self.decode,
                COLUMNS=width,
                COLUMNS_FIRST=columns_first,
                RAGGED=ragged,
                SCALE=scale,
                PRECISION=self._device.precision,
                ROWS=rows,
                BLOCKS=-(-lines // rows),
                KEYS=plan.keys,
                SPLITS=plan.splits,
                SPLIT=plan.split,
                num_warps=plan.warps,
                num_stages=plan.stages,
                **self._device.registers(rows, dtype.itemsize),
            )
        kernel = self._kernels[key]
        return kernel, kernel.constants["BLOCKS"]

    def merge_kernel(self, width: int, dtype: torch.dtype) -> Kernel:
        key = "merge", width, dtype
        if key not in self._kernels:
            splits = self._plan(dtype)[0].splits
            block = power_of_two(splits)
            large = block * power_of_two(self.value_dim) > 8192  # 4 warps would spill
            self._kernels[key] = Kernel(
                self.merge,
                COLUMNS=width,
                SPLITS=splits,
                SPLITS_BLOCK=block,
                num_warps=8 if large else 4,
            )
        return self._kernels[key]

    def _plan(self, dtype: torch.dtype) -> tuple[DecodePlan, TilePlan]:
        """The plans for queries of a dtype, which keys and values are multiplied in."""
        return self.plans[self._device.target, dtype.itemsize]

    def _window(self, read, stream, q, columns_first, scale, logits, out, lse) -> None:
        columns = read.columns
        planes = (read.keys, read.values, *(read.new or ()))
        slots = self._slots(read)
        held = self.ring and max(columns.firsts) > 0
        kernel = self.window_kernel(columns_first, held, scale, q.dtype)
        grid = (-(-columns.width // kernel.constants["ROWS"]), self.query_heads, len(columns.ends))
        places = self._places.find(columns)
        kernel(grid, stream, q, *planes, places, *logits, out, lse, *slots, columns.width)

    def window_kernel(self, columns_first, held, scale, dtype) -> Kernel:
        """`held`: a row has tokens in its ring before the columns."""
        key = "window", columns_first, held, scale, dtype
        if key not in self._kernels:
            plan = self._plan(dtype)[1]
            self._kernels[key] = Kernel(
                self.window,
                COLUMNS_FIRST=columns_first,
                **({"HELD": held} if self.ring else {}),
                SCALE=scale,
                PRECISION=self._device.precision,
                ROWS=plan.rows,
                KEYS=plan.keys,
                STAGES=plan.stages,
                EDGE_STAGES=plan.edge_stages,
                num_warps=plan.warps,
            )
        return self._kernels[key]
