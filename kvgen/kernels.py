"""The table of kernels: what each backend brings, and the template that spells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """`template` is a file of kvgen/templates; `does` says when the kernel runs and what it works through."""

    backend: str
    name: str
    template: str
    does: str


KERNELS = (
    Kernel("torch", "tiles", "torch/kernels.py.jinja", "all reads, a tile of queries at a time"),
    Kernel("torch", "training", "torch/stateless.py.jinja", "the same without storage; autograd"),
    Kernel("cpu", "append", "cpu/_cpu_job.h.jinja", "new columns to their slots"),
    Kernel("cpu", "decode", "cpu/_cpu_decode.h.jinja", "1 to 16 columns, keys read once"),
    Kernel("cpu", "window", "cpu/_cpu_window.h.jinja", "prefill and chunks, by tiles"),
    Kernel("triton", "append", "triton/append.py.jinja", "new columns to their slots"),
    Kernel("triton", "decode", "triton/decode.py.jinja", "1 to 16 columns, keys split"),
    Kernel("triton", "merge", "triton/merge.py.jinja", "the splits of a decode to one answer"),
    Kernel("triton", "window", "triton/window.py.jinja", "prefill, chunks, training forward"),
    Kernel("triton", "delta", "triton/delta.py.jinja", "what the gradients of a query share"),
    Kernel(
        "triton", "sinks", "triton/sink_gradients.py.jinja", "dK, dV of sinks, split, no atomics"
    ),
    Kernel("triton", "keys", "triton/key_gradients.py.jinja", "dK and dV, without atomics"),
    Kernel("triton", "queries", "triton/query_gradients.py.jinja", "dQ, without atomics"),
)
