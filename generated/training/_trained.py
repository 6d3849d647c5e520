# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 8dd0b7017e14 codegen 1
"""What the Triton kernels of stateless policies have in common: a forward and a backward pass without atomics."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ._columns import Columns
from ._launch import INTERPRETED, Device, Kernel, Target, TilePlan, aligned

DELTA_ROWS = 32
SINK_SPLITS = 8  # programs that share the queries which see a sink: all of them


class TrainedKernels:
    """Attends the keys and values handed in. A policy's class adds the kernels and what they are made for."""

    name: str
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    sinks: int
    # by target and bytes an element: forward, gradients of keys and values, gradients of queries
    plans: dict[tuple[str, int], tuple[TilePlan, TilePlan, TilePlan]]
    window: Any
    delta: Any
    sink_gradients: Any
    key_gradients: Any
    query_gradients: Any

    def __init__(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._device = Device(device)
        self._kernels: dict[Any, Kernel] = {}
        self._lengths: tuple[Any, Any] = None, None

    @torch.compiler.disable(reason="kernels are launched by hand here; leave out fullgraph=True")
    def attend(
        self,
        read: Any,
        q: torch.Tensor,
        scale: float,
        sink_logits: torch.Tensor | None,
        return_lse: bool = True,  # a backend may save itself the work
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q [B, Hq, L, Dk] to out [B, Hq, L, Dv] in q's dtype and lse, float32 [B, Hq, L]; differentiable."""
        if INTERPRETED and q.dtype is torch.bfloat16:  # whose products the interpreter gets wrong
            out, lse = self.attend(read, q.float(), scale, sink_logits)
            return out.to(q.dtype), lse
        if self._device.stream() is None:
            with torch.cuda.device(self._device.index):
                return self.attend(read, q, scale, sink_logits)
        k, v = read.new
        if scale <= 0:
            q, scale = q * scale, 1.0  # kernels take the maximum before they scale
        return _Attention.apply(q, k, v, sink_logits, self, scale, self.lengths_of(read.columns))

    def lengths_of(self, columns: Columns) -> torch.Tensor:
        """int32 [B], the tokens of each row; kept, since a training run asks for the same again and again."""
        if self._lengths[0] != columns.ends:
            table = torch.tensor(columns.ends, dtype=torch.int32)
            self._lengths = columns.ends, table.to(self._device.device)
        return self._lengths[1]

    @classmethod
    def ahead(cls, target: str) -> "TrainedKernels":
        """Kernels for a target without a device: its `..._kernel` methods say what to compile."""
        kernels = object.__new__(cls)
        kernels._device, kernels._kernels = Target(target), {}
        return kernels

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], *arguments: Any) -> None:
        kernel(grid, self._device.stream(), *arguments)

    def window_kernel(self, scale: float, dtype: torch.dtype) -> Kernel:
        return self._kernel(self.window, 0, scale, dtype, COLUMNS_FIRST=False)

    def key_kernel(self, scale: float, dtype: torch.dtype) -> Kernel:
        splits = {"SPLITS": SINK_SPLITS} if self.sinks else {}
        return self._kernel(self.key_gradients, 1, scale, dtype, **splits)

    def query_kernel(self, scale: float, dtype: torch.dtype) -> Kernel:
        return self._kernel(self.query_gradients, 2, scale, dtype)

    def sink_kernel(self, scale: float, dtype: torch.dtype) -> Kernel:
        return self._kernel(self.sink_gradients, 1, scale, dtype, SPLITS=SINK_SPLITS)

    def delta_kernel(self, has_d_lse: bool, dtype: torch.dtype) -> Kernel:
        key = self.delta, has_d_lse, dtype
        if key not in self._kernels:
            constants = {"HAS_D_LSE": has_d_lse, "ROWS": DELTA_ROWS}
            self._kernels[key] = Kernel(self.delta, **constants, num_warps=4)
        return self._kernels[key]

    def _kernel(self, function, which, scale, dtype, **constants: Any) -> Kernel:
        key = function, scale, dtype
        if key not in self._kernels:
            plan = self.plans[self._device.target, dtype.itemsize][which]
            self._kernels[key] = Kernel(
                function,
                SCALE=scale,
                PRECISION=self._device.precision,
                ROWS=plan.rows,
                KEYS=plan.keys,
                STAGES=plan.stages,
                EDGE_STAGES=plan.edge_stages,
                num_warps=plan.warps,
                **constants,
            )
        return self._kernels[key]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sink_logits, kernels, scale, lengths):
        q, k, v = (aligned(x.contiguous()) for x in (q, k, v))
        rows, heads, columns = q.shape[:3]
        out = q.new_empty(rows, heads, columns, kernels.value_dim)
        lse = q.new_empty((rows, heads, columns), dtype=torch.float32)
        logits = () if sink_logits is None else (aligned(sink_logits.float()),)
        if columns:
            kernel = kernels.window_kernel(scale, q.dtype)
            grid = (-(-columns // kernel.constants["ROWS"]), heads, rows)
            kernels.launch(kernel, grid, q, k, v, lengths, *logits, out, lse, columns)
        ctx.save_for_backward(q, k, v, out, lse, lengths, sink_logits, *logits)
        ctx.kernels, ctx.scale = kernels, scale
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out, d_lse):
        q, k, v, out, lse, lengths, sink_logits, *logits = ctx.saved_tensors
        kernels, scale = ctx.kernels, ctx.scale
        rows, heads, columns = q.shape[:3]
        if columns == 0 or (d_out is None and d_lse is None):
            return (None,) * 7
        d_out = torch.zeros_like(out) if d_out is None else aligned(d_out.contiguous())
        d_log = lse if d_lse is None else aligned(d_lse.contiguous())
        tiles = -(-columns // DELTA_ROWS)
        deltas = torch.empty_like(lse)
        d_sinks = [lse.new_empty(rows, heads, tiles) for _ in logits]
        kernel = kernels.delta_kernel(d_lse is not None, q.dtype)
        arguments = (out, d_out, d_log, lse, lengths, *logits, *d_sinks, deltas, columns)
        kernels.launch(kernel, (tiles, heads, rows), *arguments)
        read = q, k, v, d_out, lse, deltas, lengths
        dk, dv = _key_gradients(kernels, read, scale)
        dq = torch.empty_like(q)
        kernel = kernels.query_kernel(scale, q.dtype)
        grid = (-(-columns // kernel.constants["ROWS"]), heads, rows)
        kernels.launch(kernel, grid, *read, dq, columns)
        d_sink = d_sinks[0].sum((0, 2)).to(sink_logits.dtype) if logits else None
        return dq, dk, dv, d_sink, None, None, None


def _key_gradients(kernels: TrainedKernels, read: Any, scale: float) -> Any:
    q, k, v = read[:3]
    rows, heads, columns = k.shape[:3]
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    parts: tuple[torch.Tensor, ...] = ()
    if kernels.sinks:
        shape = rows, heads, SINK_SPLITS, kernels.sinks
        parts = tuple(x.new_empty(*shape, x.shape[3], dtype=torch.float32) for x in (k, v))
        kernel = kernels.sink_kernel(scale, q.dtype)
        blocks = -(-kernels.sinks // kernel.constants["KEYS"])
        kernels.launch(kernel, (blocks * SINK_SPLITS, heads, rows), *read, *parts, columns)
    kernel = kernels.key_kernel(scale, q.dtype)
    grid = (-(-columns // kernel.constants["KEYS"]), heads, rows)
    kernels.launch(kernel, grid, *read, *parts, dk, dv, columns)
    return dk, dv
