# pyright: basic
"""The layers of a model driven together: one object acts on all of them, layers read a donor's keys, masks are shared.

Each layer that owns a cache has a `Session` with a judge of its own; what the model's object does to all of them at once is
done to the judges one by one, and must be done by all or by none.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kvgen.verify.calls import Call, Clone, Decode, Merge, Reload, Trim, Window, act
from kvgen.verify.reference import ReferenceCache
from kvgen.verify.session import Mismatch, Session, Wrong, must_do, must_refuse
from kvgen.verify.together import Together


class Rehearsal:
    """The model's caches and the judges of its layers. What a search asks of a `Session`, this has too."""

    def __init__(self, subject: Together, rows: int, seed: int = 0) -> None:
        self.subject, self.policy = subject, subject.policy
        self.caches = subject.new_caches(rows)
        self.layers = {layer: self._layer(layer, rows, seed) for layer in subject.owners}
        self.path: tuple[Call, ...] = ()

    def _layer(self, layer: int, rows: int, seed: int) -> Session:
        session = Session(self.subject.layer(layer), rows, seed + layer, self.caches.layers[layer])
        session.judge = self.subject.judge(layer, rows)
        return session

    @property
    def judge(self) -> ReferenceCache:
        return next(iter(self.layers.values())).judge

    @property
    def rows(self) -> int:
        return self.judge.batch_size

    @property
    def reads(self) -> int:
        return sum(session.reads for session in self.layers.values())

    @property
    def largest_error(self) -> float:
        return max(session.largest_error for session in self.layers.values())

    def branch(self) -> Rehearsal:
        """Another that goes on from a clone; it holds no reads."""
        other = object.__new__(Rehearsal)
        other.__dict__.update(self.__dict__)
        other.layers = {layer: session.twin() for layer, session in self.layers.items()}
        other.do(Clone())
        return other

    def do(self, call: Call) -> bool:
        """Whether it was accepted. Raises Mismatch where the caches and the judges differ, then or afterwards."""
        self.path = (*self.path, call)
        is_append = isinstance(call, (Decode, Window))
        accepted = self._append(call) if is_append else self._act(call)
        self._check()
        return accepted

    def _append(self, call: Decode | Window) -> bool:
        """A forward: every layer that owns its keys appends, every layer attends."""
        if not all(self._fits(session, call) for session in self.layers.values()):
            return False
        for layer, donor in enumerate(self.subject.donors):
            session = self.layers[donor]
            session.path = self.path
            with _of(layer):
                if layer == donor:
                    session.append(call)
                else:
                    held = session.ask(*session.last)
                    session.compare(held)
                    session.held = [*session.held, held]
        for session in self.layers.values():
            session.held = session.held[-1:]  # of many layers one each
        return True

    def _fits(self, session: Session, call: Decode | Window) -> bool:
        width = call.width if isinstance(call, Window) else 1
        name = "append_window" if isinstance(call, Window) else "append_decode"
        columns = [[0] * width for _ in range(self.rows)]
        try:
            getattr(copy.deepcopy(session.judge), name)(columns)
        except (ValueError, RuntimeError):
            return False
        return True

    def _act(self, call: Call) -> bool:
        """All judges are asked on copies: what one of them refuses must leave every layer as it is."""
        spare = self._spare() if isinstance(call, Merge) else None
        try:
            judges = {
                layer: _judged(call, copy.deepcopy(session.judge), self.subject, layer, spare)
                for layer, session in self.layers.items()
            }
        except (ValueError, RuntimeError) as error:
            must_refuse(call, lambda: self._done(call, spare), error)
            return False
        self.caches = must_do(call, lambda: self._done(call, spare))
        for layer, session in self.layers.items():
            session.judge, session.cache = judges[layer], self.caches.layers[layer]
        return True

    def _spare(self) -> tuple[Any, dict[int, ReferenceCache]]:
        """A model of one row with a few tokens in each layer."""
        caches, judges = self.subject.new_caches(1), {}
        for layer, session in self.layers.items():
            k, v, columns = session.tokens(1, self.subject.merged_tokens)
            caches.layers[layer].append_window(k, v)
            judges[layer] = self.subject.judge(layer, 1)
            judges[layer].append_window(columns)
        return caches, judges

    def _done(self, call: Call, spare: Any) -> Any:
        """The call on the model's object: what to go on with."""
        caches = self.caches
        match call:
            case Merge():
                return type(caches).merge_rows([caches, spare[0]])
            case Reload():
                fresh = self.subject.new_caches(caches.batch_size)
                fresh.load_state_dict(caches.state_dict())
                return fresh
            case _:
                return act(call, caches)

    # -- what holds at every moment

    def _check(self) -> None:
        for layer, session in self.layers.items():
            session.path = self.path
            with _of(layer):
                session.check()
                for held in session.held:
                    session.compare(held)
        caches, judge = self.caches, self.judge
        for name in ("offsets", "offset", "batch_size"):
            self._same(name, getattr(caches, name), getattr(judge, name))
        self._same("positions(2)", caches.positions(2).tolist(), judge.positions(2))
        self._same("donors", caches.donors, self.subject.donors)
        shared = all(
            caches.layers[d] is cache for d, cache in zip(caches.donors, caches.layers, strict=True)
        )
        self._same("sharing layers hold their donor's cache", shared, True)
        one = all(cache.masks is caches.masks for cache in caches.layers)
        self._same("all layers share one masks", one, True)
        for n in (0, 1, 2, 3, judge.offset):
            expected = all(session.judge.is_trimmable(n) for session in self.layers.values())
            self._same(f"is_trimmable({n})", caches.is_trimmable(n), expected)

    def _same(self, what: str, actual: Any, expected: Any) -> None:
        if actual != expected:
            words = f"of the model: {what} is {actual}, expected {expected}"
            raise Mismatch(Wrong("state", words, question=(what, expected)))


@contextmanager
def _of(layer: int) -> Iterator[None]:
    """Says which layer a mismatch is of."""
    try:
        yield
    except Mismatch as found:
        words = f"layer {layer}: {found.wrong.words}"
        raise Mismatch(replace(found.wrong, words=words)) from found


def _judged(
    call: Call, judge: ReferenceCache, subject: Together, layer: int, spare: Any
) -> ReferenceCache:
    """The call on one layer's judge: what to go on with."""
    match call:
        case Trim(n, bypass):
            return act(Trim(n, bypass and subject.layers[layer].trim.bypass_tokens > 0), judge)
        case Merge():
            return ReferenceCache.merge_rows([judge, spare[1][layer]])
        case Reload():
            fresh = subject.judge(layer, judge.batch_size)
            fresh.load(judge.saved())
            return fresh
        case _:
            return act(call, judge)
