"""What the interpreter cannot show: bfloat16, captured graphs, streams, real launches, determinism, accuracy of float32."""

import math

import pytest
import torch

from kvgen import model
from kvgen.loading import load_text
from tests.contract.harness import TOLERANCE, policy_of

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
STORED = {
    "ring": "window 100 storage ring slack 7",
    "ring without slack": "window 128 storage ring",
    "sinks": "window 100 sinks 4 storage ring slack 7",
    "chunk": "chunk 90 storage ring slack 7",
    "fixed": "storage fixed 1024",
    "window in fixed": "window 100 storage fixed 1024",
    "softcap and sink logits": "window 100 storage ring slack 7 softcap 20 sink_logits",
}


class Life:
    """A cache on the GPU and all tokens it was given, judged in float64."""

    def __init__(self, clauses: str, rows: int = 2):
        clauses = f"{clauses} padding left right"
        self.policy = policy_of(clauses)
        package = load_text(f"kvgen 1\npolicy Tested {{ {clauses} }}\n", "tested")
        self.cache = package.TestedCache(rows, device="cuda", backend="triton")
        self.heads, self.rows = self.policy.heads, rows
        self.dtype = self.cache.dtype
        self.given: list[torch.Tensor] = []
        self.logits = (
            torch.randn(self.heads.query, device="cuda") if self.policy.scores.sink_logits else None
        )

    def tokens(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = self.rows, columns, self.heads.kv
        return tuple(
            torch.randn(*shape, dim, device="cuda").to(self.dtype).transpose(1, 2)
            for dim in (self.heads.key_dim, self.heads.value_dim)
        )

    def queries(self, columns: int) -> torch.Tensor:
        shape = self.rows, columns, self.heads.query, self.heads.key_dim
        return torch.randn(shape, device="cuda").to(self.dtype).transpose(1, 2)

    def append(self, columns: int) -> None:
        k, v = self.tokens(columns)
        q = self.queries(columns)
        read = self.cache.append_decode(k, v) if columns == 1 else self.cache.append_window(k, v)
        self.note(k, v)
        self.check(q, read.attend(q, sink_logits=self.logits))

    def note(self, k: torch.Tensor, v: torch.Tensor) -> None:
        self.given = [(k, v)] if not self.given else [*self.given, (k, v)]

    def check(self, q: torch.Tensor, out: torch.Tensor) -> None:
        k, v = (torch.cat(parts, 2).double() for parts in zip(*self.given, strict=True))
        length, columns = k.shape[2], q.shape[2]
        seen = [
            [model.visible(self.policy.retention, p, j) for j in range(length)]
            for p in range(length - columns, length)
        ]
        scores = q.double() @ k.repeat_interleave(self.heads.group, 1).mT * self.heads.key_dim**-0.5
        if cap := self.policy.scores.softcap:
            scores = cap * torch.tanh(scores / cap)
        scores = scores.masked_fill(~torch.tensor(seen, device="cuda"), -math.inf)
        if self.logits is not None:
            sink = self.logits.double()[None, :, None, None].expand(*scores.shape[:3], 1)
            scores = torch.cat([scores, sink], 3)
            v = torch.cat([v, torch.zeros_like(v[:, :, :1])], 2)
        want = scores.softmax(-1) @ v.repeat_interleave(self.heads.group, 1)
        error = (out.double() - want).abs().max().item() / max(1.0, want.abs().max().item())
        assert error <= TOLERANCE[self.dtype], error


@pytest.mark.parametrize("clauses", STORED.values(), ids=STORED.keys())
@pytest.mark.parametrize(
    "heads",
    ["heads query 8 kv 2 dim 128", "heads query 6 kv 2 dim 80", "heads query 4 kv 1 dim 256"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lives(clauses, heads, dtype):
    life = Life(f"{heads} dtype {dtype} {clauses}")
    for columns in (150, 1, 1, 5, 60, 1, 8, 300, 1):
        life.append(columns)


@pytest.mark.parametrize("clauses", ["window 100 storage ring slack 7", "storage fixed 512"])
@pytest.mark.parametrize("columns", [1, 4])
def test_a_captured_step_goes_on_where_it_was(clauses, columns):
    """Replays, sync, a trim on the host, and replays again."""
    life = Life(f"heads query 8 kv 2 dim 128 dtype bf16 {clauses}")
    life.append(120)
    (k, v), q = life.tokens(columns), life.queries(columns)
    append = life.cache.append_decode if columns == 1 else life.cache.append_window
    append(k, v).attend(q)
    life.note(k.clone(), v.clone())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = append(k, v).attend(q)
    for _ in range(3):
        replay(life, graph, k, v, q, out)
    life.cache.sync()
    assert life.cache.offset == 120 + 4 * columns
    life.cache.trim(columns)
    life.given.pop()
    replay(life, graph, k, v, q, out)
    life.cache.sync()
    life.append(1)


def replay(life, graph, k, v, q, out):
    fresh = life.tokens(k.shape[2])
    k.copy_(fresh[0])
    v.copy_(fresh[1])
    graph.replay()
    life.note(*fresh)
    life.check(q, out)


def test_a_replay_past_fixed_storage_is_told():
    life = Life("heads query 8 kv 2 dim 128 dtype bf16 storage fixed 130")
    life.append(127)
    life.append(1)
    (k, v), q = life.tokens(1), life.queries(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        life.cache.append_decode(k, v).attend(q)
    for _ in range(4):
        graph.replay()
    with pytest.raises(RuntimeError, match="full"):
        life.cache.sync()


def test_storage_that_grows_refuses_capture():
    life = Life("heads query 8 kv 2 dim 128 dtype bf16")
    life.append(5)
    k, v = life.tokens(1)
    with pytest.raises(RuntimeError, match="grows"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        life.cache.append_decode(k, v)


def test_a_row_does_not_depend_on_its_batch():
    clauses = "heads query 8 kv 2 dim 128 dtype bf16 window 4096 storage ring"
    many, one = Life(clauses, rows=7), Life(clauses, rows=1)
    k, v = many.tokens(4096)
    q = many.queries(1)
    for life, rows in ((many, slice(None)), (one, slice(3, 4))):
        life.cache.append_window(k[rows], v[rows])
    answers = [
        life.cache.append_decode(k[rows, :, :1], v[rows, :, :1]).attend(q[rows])
        for life, rows in ((many, slice(None)), (one, slice(3, 4)))
    ]
    assert torch.equal(answers[0][3:4], answers[1])


@pytest.mark.parametrize(
    "clauses", ["window 100", "window 100 sinks 4 softcap 20 sink_logits", "chunk 90"]
)
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_training_gives_the_same_bits_and_the_right_gradients(clauses, dim):
    text = f"kvgen 1\npolicy Tested {{ heads query 8 kv 2 dim {dim} dtype bf16 {clauses} stateless }}\n"
    package = load_text(text, "tested")
    cache = package.TestedCache(2, device="cuda", backend="triton")
    judge = package.TestedCache(2, device="cuda", dtype=torch.float32, backend="torch")
    leaves = [torch.randn(2, h, 700, dim, device="cuda").bfloat16() for h in (8, 2, 2)]
    logits = [torch.randn(8, device="cuda")] if "sink_logits" in clauses else []
    first, second = (gradients(cache, leaves, logits) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    for found, want in zip(
        first, gradients(judge, [x.float() for x in leaves], logits), strict=True
    ):
        assert (found.float() - want).abs().max() <= 4e-2 * max(1.0, want.abs().max().item())


def gradients(cache, leaves, logits):
    leaves = [x.clone().requires_grad_() for x in leaves]
    logits = [x.clone().requires_grad_() for x in logits]
    q, k, v = leaves
    out = cache.append_window(k, v).attend(q, sink_logits=logits[0] if logits else None)
    out.float().square().sum().backward()
    return [x.grad for x in (*leaves, *logits)]
