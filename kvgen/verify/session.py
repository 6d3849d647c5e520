# pyright: basic
"""One cache of the emitted code and the judge, driven together and compared at every step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kvgen.verify.calls import Call, Clone, Decode, Merge, Reload, Window, act
from kvgen.verify.float64 import Store
from kvgen.verify.reference import ReferenceCache, RefusedError
from kvgen.verify.subject import Subject
from kvgen.verify.tolerance import relative

HELD = 2  # reads that are kept and asked again
WIDE = 256  # columns, from which on only some are compared
ATTENDED = 2.0  # the share of wide appends that is attended is this, times WIDE, over the width
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Wrong:
    """What shows the fault after the last call: the answer of a read, or of `is_trimmable`, or a refusal."""

    kind: str  # "answer", "is_trimmable", "state", "refused", "accepted" or "raised"
    words: str
    read: int = 0  # the number of the append
    row: int = 0
    column: int = 0
    question: Any = None


class Mismatch(Exception):
    """The emitted code does something else than `kvgen.model` says."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(wrong.words)
        self.wrong = wrong


def must_do(call: Call, acts: Callable[[], Any]) -> Any:
    """What the judge did too. The emitted code may be wrong in any way, so whatever it raises is a finding."""
    try:
        return acts()
    except Exception as error:
        raise Mismatch(Wrong("raised", f"{call} raises {type(error).__name__}: {error}")) from error


def must_refuse(call: Call, acts: Callable[[], Any], error: Exception) -> None:
    """What the judge refused with `error`."""
    kinds = (ValueError, RuntimeError) if isinstance(error, RefusedError) else (type(error),)
    try:
        acts()
    except kinds:
        return
    except Exception as other:
        expected = f"expected {kinds[0].__name__}"
        words = f"{call} raises {type(other).__name__}, {expected}: {other}"
        raise Mismatch(Wrong("raised", words)) from other
    raise Mismatch(Wrong("accepted", f"{call} must be refused: {error}"))


@dataclass(slots=True)
class Held:
    """A read with its queries and the answer that it must go on giving. `only`: the columns compared."""

    number: int
    read: Any
    query: torch.Tensor
    options: dict[str, Any]
    expected: tuple[torch.Tensor, torch.Tensor]
    only: list[int]


class Session:
    def __init__(self, subject: Subject, rows: int, seed: int = 0, cache: Any = None) -> None:
        """`cache`: one that there is, of a model's layer; None makes one."""
        self.subject, self.policy = subject, subject.policy
        self.cache = subject.new_cache(rows) if cache is None else cache
        self.judge = ReferenceCache(self.policy, rows, subject.capacity)
        self.store = Store(self.policy.heads)
        self.random, self.choose = torch.Generator().manual_seed(seed), random.Random(seed)
        self.path: tuple[Call, ...] = ()
        self.held: list[Held] = []
        self.last: Any = None  # of the last append, for layers that attend the same read
        self.appends = self.reads = 0
        self.largest_error = 0.0

    @property
    def rows(self) -> int:
        return self.judge.batch_size

    def branch(self) -> Session:
        """Another that goes on from a clone."""
        other = self.twin()
        other.do(Clone())
        return other

    def twin(self) -> Session:
        """Another of the same cache and judge; it holds no reads."""
        other = object.__new__(Session)
        other.__dict__.update(self.__dict__, held=[])
        return other

    # -- calls

    def do(self, call: Call) -> bool:
        """Whether it was accepted, by both. Raises Mismatch where they differ, then or in what holds afterwards."""
        self.path = (*self.path, call)
        accepted = self.append(call) if isinstance(call, (Decode, Window)) else self._other(call)
        self.check()
        for held in self.held:
            self.compare(held)
        return accepted

    def _other(self, call: Call) -> bool:
        match call:
            case Merge():
                return self._both(self._merged)
            case Reload():
                return self._both(self._reloaded)
            case _:
                return self._both(lambda side: act(call, side))

    def _both(self, acts: Callable[[Any], Any]) -> bool:
        try:
            judge = acts(self.judge)
        except (ValueError, RuntimeError) as error:
            must_refuse(self.path[-1], lambda: acts(self.cache), error)
            return False
        self.cache, self.judge = must_do(self.path[-1], lambda: acts(self.cache)), judge
        return True

    def _merged(self, side: Any) -> Any:
        """With one row of a few tokens, of the kind of `side`; the judge is asked first."""
        if side is self.judge:
            k, v, columns = self.tokens(1, self.subject.merged_tokens)
            self.spare = self.subject.new_cache(1)
            self.spare.append_window(k, v)
            spare = ReferenceCache(self.policy, 1, self.subject.capacity)
            spare.append_window(columns)
            return ReferenceCache.merge_rows([side, spare])
        return type(side).merge_rows([side, self.spare])

    def _reloaded(self, side: Any) -> Any:
        if side is self.judge:
            other = ReferenceCache(self.policy, self.rows, self.subject.capacity)
            other.load(self.judge.saved())
            return other
        fresh = self.subject.new_cache(side.batch_size)
        fresh.load_state_dict(side.state_dict())
        return fresh

    # -- appends

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.policy.dtype.torch_name)

    def normal(self, *shape: int) -> torch.Tensor:
        """The same numbers on every device."""
        return torch.randn(shape, generator=self.random).to(self.subject.device)

    def tokens(self, rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
        """New keys and values, and their numbers in the store."""
        heads = self.policy.heads
        k, v = (
            self.normal(rows, heads.kv, width, dim).to(self.dtype)
            for dim in (heads.key_dim, heads.value_dim)
        )
        return k, v, self.store.add(k, v)

    def append(self, call: Decode | Window) -> bool:
        width = call.width if isinstance(call, Window) else 1
        name = "append_window" if isinstance(call, Window) else "append_decode"
        k, v, columns = self.tokens(self.rows, width)
        try:
            judged = getattr(self.judge, name)(columns)
        except (ValueError, RuntimeError) as error:
            must_refuse(self.path[-1], lambda: getattr(self.cache, name)(k, v), error)
            return False
        self.appends += 1
        padding = torch.tensor(
            [[p is None for p in row] for row in judged.queries], dtype=torch.bool
        )
        hide = padding.reshape(len(judged.queries), 1, width, 1).to(k.device)
        k, v = k.masked_fill(hide, NAN), v.masked_fill(hide, NAN)
        read = must_do(self.path[-1], lambda: getattr(self.cache, name)(k, v))
        for borrowed in (k, v):  # until the append returned
            borrowed.fill_(NAN)
        if width > WIDE and self.choose.random() > ATTENDED * WIDE / width:
            return True  # stored, not attended
        self.last = judged, read, hide
        held = self.ask(*self.last)
        self.compare(held)
        self.held = [*self.held, held][-HELD:]
        return True

    def ask(self, judged: Any, read: Any, hide: torch.Tensor) -> Held:
        heads, (rows, width) = self.policy.heads, (len(judged.queries), len(judged.queries[0]))
        dtype = torch.float32 if self.choose.random() < 0.25 else self.dtype
        q = self.normal(rows, heads.query, width, heads.key_dim).to(dtype)
        options: dict[str, Any] = {}
        if self.policy.scores.sink_logits:
            options["sink_logits"] = self.normal(heads.query)
        only = self._columns(width)
        expected = judged.attend(q, self.store.keys, self.store.values, **options, only=only)
        return Held(self.appends, read, q.masked_fill(hide, NAN), options, expected, only)

    def _columns(self, width: int) -> list[int]:
        """All of few; of many both ends, the edges of tiles, and some."""
        if width <= WIDE:
            return list(range(width))
        edges = [0, 127, 128, width - 2, width - 1]
        return sorted({*edges, *(self.choose.randrange(width) for _ in range(5))})

    def compare(self, held: Held) -> None:
        self.reads += 1
        answer = must_do(
            self.path[-1], lambda: held.read.attend(held.query, return_lse=True, **held.options)
        )
        parts = zip(("answers", "has log-sum-exp"), answer, held.expected, strict=True)
        for what, actual, expected in parts:
            self._close(what, actual[:, :, held.only].double(), expected, held)

    def _close(self, what: str, actual: torch.Tensor, expected: torch.Tensor, held: Held) -> None:
        if actual.shape != expected.shape:
            raise Mismatch(
                Wrong("answer", f"a read {what} of shape {list(actual.shape)}", held.number)
            )
        finite = expected[expected.isfinite()]
        allowed = relative(self.policy.dtype.torch_name) * max(
            1.0, finite.abs().max().item() if finite.numel() else 0
        )
        error = torch.where(actual == expected, 0.0, (actual - expected).abs()).nan_to_num(
            torch.inf
        )
        if error.numel():
            self.largest_error = max(self.largest_error, error.max().item() / allowed)
        if (error > allowed).any():
            at = (error > allowed).nonzero()[0].tolist()
            words = f"the read of append {held.number} {what} {actual[tuple(at)]:.6g} where {expected[tuple(at)]:.6g} is right"
            column = held.only[at[2]]
            raise Mismatch(Wrong("answer", f"{words} (row {at[0]}, query head {at[1]}, column {column})",
                                 held.number, at[0], column))  # fmt: skip

    # -- what holds at every moment

    def check(self) -> None:
        cache, judge = self.cache, self.judge
        for name in ("offsets", "offset", "batch_size"):
            self._same(name, getattr(cache, name), getattr(judge, name))
        self._same("positions(2)", cache.positions(2).tolist(), judge.positions(2))
        largest = max(judge.offsets)
        questions: tuple[Any, ...] = (0, 1, 2, largest, largest + 1, list(judge.offsets))
        for n in questions:
            answer = must_do(self.path[-1], lambda n=n: cache.is_trimmable(n))
            if answer != (expected := judge.is_trimmable(n)):
                words = f"is_trimmable({n}) is {answer}, expected {expected}"
                raise Mismatch(Wrong("is_trimmable", words, question=(n, expected)))

    def _same(self, what: str, actual: Any, expected: Any) -> None:
        if actual != expected:
            words = f"{what} is {actual}, expected {expected}"
            raise Mismatch(Wrong("state", words, question=(what, expected)))
