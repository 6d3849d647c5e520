"""The tests of one policy, or of one model, on one backend of the emitted code, until one finds something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from kvgen.ir import CachePolicy, Stateless
from kvgen.verify import forwards, replay, stateless
from kvgen.verify.clock import Clock, OutOfTime, Tell
from kvgen.verify.report import Tested
from kvgen.verify.script import script
from kvgen.verify.search import Failure, Random, Walk, shrunk
from kvgen.verify.stateless import Forward, ForwardFailure
from kvgen.verify.subject import Subject, small, true_size
from kvgen.verify.together import Together

SHRINKING = 15.0  # seconds for making a counterexample short
_DEEPEST = 6  # moves of the exhaustive walk
_SMALL_MOVES, _TRUE_MOVES = 24, 12  # of a random sequence
_ENDLESS = 1 << 30
_EVERY_LENGTH = "every length and padding"
_SHARES = {"random": 0.15, "walk": 0.5, "true": 0.35}  # of the time


class Trial:
    def __init__(
        self,
        policy: CachePolicy,
        backend: str,
        name: str,
        seconds: float,
        tell: Callable[[str, float], None] | None,
        seed: int,
    ) -> None:
        """`name`: what to call the policy in a script. `tell` takes words and the share that is done."""
        self.backend, self.name, self.seed = backend, name, seed
        self.seconds, self.said, self.passed = seconds, tell, 0.0
        self.stateless = isinstance(policy.storage, Stateless)
        self.small, self.true = small(policy, backend), true_size(policy, backend)
        for subject in (self.small, self.true):
            subject.new_cache(1)  # builds its kernels before any clock runs

    def tests(self) -> Iterator[Tested]:
        steps = (
            (self.lengths, self.edges) if self.stateless else (self.random, self.walk, self.size)
        )
        for step in steps:
            test = step()
            yield test
            if test.wrong:
                return

    def clock(self, step: str, what: str) -> Clock:
        share, start, said = _SHARES[step], self.passed, self.said
        self.passed += share
        if said is None:
            return Clock(self.seconds * share)
        words = f"{self.name}, {self.backend}: {what}"
        tell: Tell = lambda done: said(words, start + share * done)  # noqa: E731
        return Clock(self.seconds * share, tell)

    # -- stateful

    def random(self) -> Tested:
        clock = self.clock("random", "random sequences")
        search = Random(self.small, clock, _SMALL_MOVES, self.seed)
        if (failure := _searched(lambda: search.run(_ENDLESS))) is not None:
            return self.failed(failure, "a random sequence of calls goes wrong")
        count = _sequences(search.sequences, _SMALL_MOVES)
        return self.passed_test(f"{count}, {search.reads:,} reads", search.sequences, False)

    def walk(self) -> Tested:
        """Deeper and deeper, while there is time."""
        walk = Walk(self.small, self.clock("walk", "every short sequence"))
        if (failure := _searched(lambda: walk.deeper(_DEEPEST))) is not None:
            return self.failed(failure, "a short sequence of calls goes wrong")
        return self.passed_test(_walked(walk), walk.sequences, walk.deepest > 0)

    def size(self) -> Tested:
        search = Random(self.true, self.clock("true", "true size"), _TRUE_MOVES, self.seed)
        if (failure := _searched(lambda: search.run(_ENDLESS))) is not None:
            return self.failed(failure, "a random sequence of calls at true size goes wrong")
        count = _sequences(search.sequences, _TRUE_MOVES)
        size = f"at true size: {self.true.scale}; largest error {search.largest_error:.0%} of what is allowed"
        reads = f"{search.reads:,} reads against float64"
        return Tested(self.backend, size, f"{count}, {reads}", search.sequences, False)

    def passed_test(self, count: str, sequences: int, complete: bool) -> Tested:
        return Tested(self.backend, _small_words(self.small), count, sequences, complete)

    def failed(self, failure: Failure, count: str) -> Tested:
        short = shrunk(failure, SHRINKING)
        calls = (
            "one call shows it" if len(short.calls) == 1 else f"{len(short.calls)} calls show it"
        )
        words = f"{calls}; the policy here: {short.subject.scale}"
        return Tested(self.backend, words, count, 1, False, str(short), script(short, self.name))

    # -- stateless

    def lengths(self) -> Tested:
        clock = self.clock("walk", _EVERY_LENGTH)
        passes = _Passes(self.small, _EVERY_LENGTH, _small_words(self.small), self.name)
        return passes.tested(stateless, stateless.every_forward(self.small.policy), clock)

    def edges(self) -> Tested:
        what = "lengths at every edge"
        passes = _Passes(self.true, what, f"at true size: {self.true.scale}", self.name)
        forwards = stateless.edge_forwards(self.true.policy)
        return passes.tested(stateless, forwards, self.clock("true", what))


class ModelTrial:
    """The tests of a model's layers together, on one backend, until one finds something."""

    def __init__(
        self,
        subject: Together,
        seconds: float,
        tell: Callable[[str, float], None] | None,
        seed: int,
    ) -> None:
        self.subject, self.seed, self.seconds, self.said = subject, seed, seconds, tell
        self.name = f"model {subject.name}"
        subject.new_caches(1)  # builds its kernels before any clock runs

    def tests(self) -> Iterator[Tested]:
        for step in (self.lengths,) if self.subject.stateless else (self.random, self.walk):
            test = step()
            yield test
            if test.wrong:
                return

    def clock(self, start: float, share: float, what: str) -> Clock:
        said = self.said
        if said is None:
            return Clock(self.seconds * share)
        words = f"{self.name}, {self.subject.backend}: {what}"
        tell: Tell = lambda done: said(words, start + done * share)  # noqa: E731
        return Clock(self.seconds * share, tell)

    def lengths(self) -> Tested:
        passes = _Passes(
            self.subject, f"{_EVERY_LENGTH}, every layer", self.subject.scale, self.name
        )
        clock = self.clock(0, 1, passes.what)
        return passes.tested(forwards, stateless.every_forward(self.subject.policy), clock)

    def random(self) -> Tested:
        clock = self.clock(0, 0.5, "random sequences, all layers")
        search = Random(self.subject, clock, _SMALL_MOVES, self.seed)
        if (failure := _searched(lambda: search.run(_ENDLESS))) is not None:
            return self.failed(failure, "a random sequence of calls on the model goes wrong")
        count = f"{_sequences(search.sequences, _SMALL_MOVES)}, {search.reads:,} reads"
        return self.passed(count, search.sequences, False)

    def walk(self) -> Tested:
        walk = Walk(self.subject, self.clock(0.5, 0.5, "every short sequence, all layers"))
        if (failure := _searched(lambda: walk.deeper(_DEEPEST))) is not None:
            return self.failed(failure, "a short sequence of calls on the model goes wrong")
        return self.passed(_walked(walk), walk.sequences, walk.deepest > 0)

    def passed(self, count: str, sequences: int, complete: bool) -> Tested:
        return Tested(self.subject.backend, self.subject.scale, count, sequences, complete)

    def failed(self, failure: Failure, count: str) -> Tested:
        short = shrunk(failure, SHRINKING)
        shown = replay.script(short, self.name)
        backend, scale = self.subject.backend, self.subject.scale
        return Tested(backend, scale, count, 1, False, str(short), shown)


@dataclass(frozen=True, slots=True)
class _Passes:
    """Forwards of a stateless policy, or of a model of such. `what` they are, `size`: of the policies, in words."""

    subject: Subject | Together
    what: str
    size: str
    name: str

    def tested(self, how: Any, passes: Iterable[Forward], clock: Clock) -> Tested:
        """`how`: the module that checks one, and writes the script of one that goes wrong."""
        backend = self.subject.backend
        try:
            checked = partial(how.check, self.subject)
            done, all_of_them = stateless.check_all(checked, passes, clock)
        except ForwardFailure as failure:
            count, shown = f"{failure.forward} goes wrong", how.script(failure, self.name)
            return Tested(backend, self.size, count, 1, False, str(failure), shown)
        rest = "" if all_of_them else ", not all of them"
        count = f"{self.what}, forward and backward: {done:,}{rest}"
        return Tested(backend, self.size, count, done, all_of_them)


def _walked(walk: Walk) -> str:
    if not walk.deepest:
        return f"no time for every sequence of even one move; {walk.sequences:,} of them"
    moves = "move" if walk.deepest == 1 else "moves"
    count = f"every sequence of up to {walk.deepest} {moves}, one row and two: {walk.whole:,}"
    others = walk.sequences - walk.whole
    return f"{count}, and {others:,} others" if others else count


def _searched(search: Callable[[], None]) -> Failure | None:
    """What a search finds until its time is up."""
    try:
        search()
    except OutOfTime:
        return None
    except Failure as failure:
        return failure
    return None


def _sequences(count: int, moves: int) -> str:
    sequences = "one random sequence" if count == 1 else f"{count:,} random sequences"
    return f"{sequences} of up to {moves} moves"


def _small_words(subject: Subject) -> str:
    return f"made small: {subject.scale}; float32, few heads"
