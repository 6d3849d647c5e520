"""Seeded faults: what someone who mends a template could get wrong. Each is one replacement in what one template renders.

`clauses`: a policy that the fault concerns.
"""

from __future__ import annotations

from dataclasses import dataclass

RING = "window 3 storage ring slack 1 padding left right trim guarded bypass 1"
SINKS = f"sinks 1 sink_logits softcap 2 {RING}"
CHUNK = RING.replace("window", "chunk")
LINEAR = "window 3 sinks 1 storage contiguous padding left right"

POLICY, CACHE, KERNELS = "cache/policy.py.jinja", "cache/ring.py.jinja", "torch/kernels.py.jinja"
STATEFUL, STORAGE = "package/_stateful.py.jinja", "package/_storage.py.jinja"
ROWS = "package/_rows.py.jinja"
COLUMNS, TILES = "package/_columns.py.jinja", "package/_tiles.py.jinja"
STATELESS = "torch/stateless.py.jinja"


@dataclass(frozen=True)
class Fault:
    name: str
    template: str
    right: str
    wrong: str
    clauses: str = RING


FAULTS = [
    Fault("window too wide by one", POLICY, "q - k < WINDOW", "q - k <= WINDOW"),
    Fault("window too narrow by one", POLICY, "q - k < WINDOW", "q - k < WINDOW - 1"),
    Fault("one sink too many", POLICY, "k < SINKS", "k <= SINKS", SINKS),
    Fault("a query does not see itself", POLICY, "q >= k", "q > k"),
    Fault("the chunk before is seen", POLICY, "k // CHUNK == q // CHUNK", "k // CHUNK >= q // CHUNK - 1", CHUNK),
    Fault("first position one too late", POLICY, "p - WINDOW + 1", "p - WINDOW + 2"),
    Fault("lost slack", POLICY, "RING = WINDOW + SLACK", "RING = WINDOW"),
    Fault("slots shifted by the sinks", POLICY, "SINKS + (first - SINKS) % RING", "SINKS + first % RING", SINKS),
    Fault("the wrapped part one slot late", POLICY, "(first + ahead, 0, end", "(first + ahead, 1, end"),
    Fault("the oldest of a ring not stored", POLICY, "first = max(first, end - RING)", "first = max(first, end - RING + 1)"),
    Fault("overwritten tokens not handed over", STORAGE, "        self._keep(index, lowest_slot)\n        self.keys", "        self.keys"),
    Fault("a snapshot misses its last slot", STORAGE, "read.slots > lowest_slot]", "read.slots > lowest_slot + 1]"),
    Fault("overwritten tokens put back in the wrong order", STORAGE, "in reversed(overwritten)", "in overwritten"),
    Fault("ragged rows taken for the same", COLUMNS, "self.ends))) > 1:", "self.ends))) > 2:"),
    Fault("padding has positions", COLUMNS, "(p >= first) & (p < end)", "(p >= start) & (p < end)"),
    Fault("right padding counted as tokens", STATEFUL, "min(left, width - skip)", "min(left, width)"),
    Fault("left padding shifts the row", STATEFUL, "tuple(first - skip for first, skip", "tuple(first for first, skip"),
    Fault("left padding never ends", STATEFUL, "tuple(n - skip for n, skip", "tuple(n for n, skip"),
    Fault("merge overlaps rows", ROWS, "row += part._batch_size", "row += 1"),
    Fault("wrong row's offset", ROWS, "tuple(values[row] for row in rows)", "tuple(values[0] for row in rows)"),
    Fault("state loads keys as values", "package/_state.py.jinja", 'state["values"][:, part]', 'state["keys"][:, part]'),
    Fault("bypass survives a change of rows", CACHE, "    def _after_row_change(self) -> None:\n        self._verified =", "    def _after_row_change(self) -> None:\n        _ ="),
    Fault("one column too many in place", CACHE, "width <= SLACK + 1", "width <= SLACK + 2"),
    Fault("taken back tokens written all the same", CACHE, "columns._replace(ends=self._offsets)", "columns"),
    Fault("a whole ring written too early", CACHE, "if columns.width > RING:", "if columns.width >= RING:"),
    Fault("the oldest position off by one", CACHE, "max(oldest, end - RING)", "max(oldest, end - RING - 1)"),
    Fault("the oldest position not lowered by a trim", CACHE, "tuple(min(oldest, end) for oldest, end", "tuple(oldest for oldest, end"),
    Fault("rollback refused too early", CACHE, "min(oldest, offset) <=", "min(oldest, offset) <"),
    Fault("one token too many by bypass", CACHE, "count > left for count, left", "count > left + 1 for count, left"),
    Fault("bypass beyond what is declared", CACHE, "min(BYPASS, tokens)", "tokens"),
    Fault("NaN of padding stored", CACHE, "x.masked_fill_(padding, 0) for x in new", "x for x in new"),
    Fault("borrowed tensors kept", CACHE, "x.clone(memory_format=torch.contiguous_format)", "x.contiguous()"),
    Fault("waiting columns lost with their rows", CACHE, "if self._waiting is not None:\n            (k, v), columns = self._waiting\n            columns = Columns", "if False:\n            (k, v), columns = self._waiting\n            columns = Columns"),
    Fault("scale forgotten", KERNELS, "q.float() * scale", "q.float()"),
    Fault("softcap forgotten", KERNELS, "SOFTCAP * torch.tanh(scores / SOFTCAP)", "scores", SINKS),
    Fault("sink logit counted twice", KERNELS, "torch.logaddexp(lse, sink_logits.float()[:, None])", "torch.logaddexp(lse, sink_logits.float()[:, None] + 0.6931)", SINKS),
    Fault("softmax not rescaled between blocks", KERNELS, "total = total * shrink +", "total = total +"),
    Fault("slack is seen", KERNELS, "oldest >= first_seen(row.last)", "True"),
    Fault("new sinks forgotten", KERNELS, "if new_sinks := max(0,", "if new_sinks := 0 * max(0,", SINKS),
    Fault("stored sinks forgotten", KERNELS, "elif sinks := min(SINKS, used):", "elif sinks := 0 * min(SINKS, used):", SINKS),
    Fault("tiles shared by reads at different places", KERNELS, "RING, one, device)", "RING, one.width, device)"),
    Fault("padding answers", KERNELS, "out.masked_fill(padding, 0)", "out.nan_to_num(1)"),
    Fault("the first query of a tile sees one more", KERNELS, "min(row.first + 1 for row in rows),", "min(row.first + 2 for row in rows),", LINEAR),
    Fault("sinks of long rows forgotten", KERNELS, "[Piece(True, 0, min(SINKS, low), None)] if low", "[] if low", LINEAR),
    Fault("storage grows too late", "cache/linear.py.jinja", "if max(columns.ends) > self._storage.slots:", "if max(columns.ends) > self._storage.slots + 1:", LINEAR),
    Fault("gradients without the sum over a group", STATELESS, "dv[:, :, low:high] += weights.mT @ d_out", "dv[:, :, low:high] += weights.mT @ d_out / 2", "window 3 stateless padding right"),
    Fault("the softcap has no slope", STATELESS, "(1 - bent * bent) * ", "", "window 3 softcap 2 stateless padding right"),
    Fault("padding of a forward is seen", "package/_stateless.py.jinja", "tuple(min(n, width) for n in self._row_lengths)", "(width,) * self._batch_size", "stateless padding right"),
]  # fmt: skip
