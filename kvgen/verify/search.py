# pyright: basic
"""Looking for a sequence of calls that goes wrong: all short ones, random long ones; and making a found one short."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kvgen import model
from kvgen.ir import Ring
from kvgen.verify.calls import (
    Call,
    Clone,
    Decode,
    Extract,
    Finalize,
    Merge,
    Move,
    Prepare,
    Reload,
    Reset,
    Rows,
    Trim,
    Window,
    smallest_moves,
)
from kvgen.verify.clock import Clock
from kvgen.verify.rehearsal import Rehearsal
from kvgen.verify.session import Mismatch, Session, Wrong
from kvgen.verify.subject import Subject
from kvgen.verify.together import Together

MOST_ROWS = 3


class Failure(Exception):
    """A sequence of calls after which the emitted code and the model differ."""

    def __init__(
        self, subject: Subject | Together, rows: int, calls: tuple[Call, ...], wrong: Wrong
    ) -> None:
        super().__init__(wrong.words)
        self.subject, self.rows, self.calls, self.wrong = subject, rows, calls, wrong


# -- all short ones


class Walk:
    """A tree: a node is a state, a branch one more move on a clone of it; the last branch is the node itself.

    What is refused changes nothing, so it leads nowhere; that it changed nothing is what its siblings show.
    """

    def __init__(self, subject: Subject | Together, clock: Clock) -> None:
        self.subject, self.clock = subject, clock
        self.sequences = self.reads = 0
        # moves of the deepest tree that was walked whole, and its sequences
        self.deepest = self.whole = 0

    def deeper(self, most: int) -> None:
        """Depth after depth."""
        for depth in range(1, most + 1):
            before = self.sequences
            self.depth(depth)
            self.deepest, self.whole = depth, self.sequences - before

    def depth(self, depth: int) -> None:
        """Every sequence of `depth` moves, for one row and for two."""
        for rows in (1, 2):
            session = self.subject.session(rows)
            self._visit(session, rows, depth)

    def _visit(self, session: Session | Rehearsal, rows: int, depth: int) -> None:
        moves = smallest_moves(self.subject.policy, session.judge.offsets)
        turn = self.sequences % len(moves)  # every move gets its turn at the node itself
        for number, move in enumerate((*moves[turn:], *moves[:turn])):
            self.clock.tick()
            last = number == len(moves) - 1
            branch = session if last else self._branch(session, rows)
            self.sequences += 1
            before = branch.reads
            accepted = _do(branch, rows, move)
            self.reads += branch.reads - before
            if accepted and depth > 1:
                self._visit(branch, rows, depth - 1)

    def _branch(self, session: Session | Rehearsal, rows: int) -> Session | Rehearsal:
        try:
            return session.branch()
        except Mismatch as found:
            raise Failure(session.subject, rows, (*session.path, Clone()), found.wrong) from found


def _do(session: Session | Rehearsal, rows: int, move: Move) -> bool:
    try:
        accepted = [session.do(call) for call in move]  # all are tried, also after a refused one
    except Mismatch as found:
        raise Failure(session.subject, rows, session.path, found.wrong) from found
    return all(accepted)


# -- random long ones


class Random:
    """Sequences of up to `length` moves. The same `seed` gives the same ones."""

    def __init__(
        self, subject: Subject | Together, clock: Clock, length: int, seed: int = 0
    ) -> None:
        self.subject, self.clock, self.length, self.seed = subject, clock, length, seed
        self.sequences = self.reads = 0
        self.largest_error = 0.0
        self.widths, self.trims = _edges(subject)

    def run(self, most: int) -> None:
        """Until the time is up, at most so many sequences, and one at least."""
        for _ in range(most):
            choose = random.Random(f"{self.seed}/{self.sequences}")
            rows = choose.randint(1, MOST_ROWS)
            session = self.subject.session(rows, choose.randrange(1 << 30))
            for _ in range(choose.randint(3, self.length)):
                if self.sequences:
                    self.clock.tick()
                _do(session, rows, self._move(choose, session))
            self.sequences += 1
            self.reads += session.reads
            self.largest_error = max(self.largest_error, session.largest_error)

    def _move(self, choose: random.Random, session: Session | Rehearsal) -> Move:
        rows = session.rows
        kind = choose.choices(_KINDS, _WEIGHTS)[0]
        match kind:
            case "decode":
                return (Decode(),) * choose.randint(1, 4)
            case "window":
                return (Window(choose.choice(self.widths)),)
            case "trim":
                return (self._trim(choose, session),)
            case "verify":
                width = choose.choice(self.widths[:6])
                bypass = session.policy.trim.bypass_tokens
                back = choose.randint(0, min(width, bypass + 1 if bypass else width))
                return Window(width), Trim(back, bypass=bypass > 0)
            case "prefill":
                return tuple(self._prefill(choose, session))
            case "rows":
                kept = tuple(choose.choices(range(rows), k=choose.randint(1, MOST_ROWS)))
                return Rows(kept), Trim(1, bypass=choose.random() < 0.5)
            case "extract":
                return (Extract(choose.randrange(rows)),)
            case "merge" if rows < MOST_ROWS:
                return (Merge(),)
            case "reset":
                return (Reset(),)
            case _:
                return (choose.choice((Clone(), Reload())),)

    def _trim(self, choose: random.Random, session: Session | Rehearsal) -> Trim:
        if choose.random() < 0.1:
            return Trim(session.judge.offsets)  # all there is
        counts = tuple(choose.choice(self.trims) for _ in range(session.rows))
        return Trim(counts[0] if choose.random() < 0.5 else counts, bypass=choose.random() < 0.2)

    def _prefill(self, choose: random.Random, session: Session | Rehearsal) -> Iterator[Call]:
        padding, rows = session.policy.padding, session.rows
        width = choose.choice(self.widths[1:] or self.widths)
        left = tuple(choose.randint(0, min(3, width)) if padding.left else 0 for _ in range(rows))
        lengths = tuple(
            choose.randint(max(0, width - pad - 3), width - pad) if padding.right else width - pad
            for pad in left
        )
        cut = choose.randint(0, width)
        yield Prepare(lengths, left)
        yield from (Window(part) for part in (cut, width - cut) if part)
        yield Finalize()


_KINDS = (
    "decode",
    "window",
    "trim",
    "verify",
    "prefill",
    "rows",
    "extract",
    "merge",
    "reset",
    "copy",
)
_WEIGHTS = (6, 6, 4, 3, 2, 1, 0.5, 1, 0.3, 1)
_TILES = (2, 16, 17, 127, 128, 129)


def _edges(subject: Subject | Together) -> tuple[list[int], list[int]]:
    """(widths of windows, counts of trims) on both sides of every edge of the policy and of the kernels' tiles."""
    policy = subject.policy
    reach = model.reach(policy.retention) or 20
    slack = policy.storage.slack_slots if isinstance(policy.storage, Ring) else 3
    ring = reach + slack
    widths = {1, 2, slack + 1, slack + 2, reach - 1, reach, reach + 1, ring - 1, ring, ring + 1}
    widths |= set(_TILES) if reach > 16 else {_TILES[-1] + 2}
    room = model.capacity(policy) or subject.capacity
    endless = isinstance(policy.storage, Ring) or room is None
    most = max(2 * ring, max(_TILES) + 2) if endless else max(1, (room or 0) // 3)
    return sorted(w for w in widths if 0 < w <= most), sorted(
        {1, 2, slack, slack + 1, slack + 2} - {0}
    )


# -- making one short


def shrunk(failure: Failure, seconds: float) -> Failure:
    """The shortest sequence found that fails too, not necessarily in the same way."""
    clock, best = Clock(seconds), replayed(failure.subject, failure.rows, failure.calls)
    best = best or failure
    improved = True
    while improved and clock.left() > 0:
        improved = False
        for rows, calls in _smaller(best):
            if clock.left() <= 0:
                break
            found = replayed(best.subject, rows, calls)
            if found is not None:
                best, improved = found, True
                break
    return best


def replayed(subject: Subject | Together, rows: int, calls: tuple[Call, ...]) -> Failure | None:
    """The failure that these calls lead to on a new cache, if any."""
    session = subject.session(rows)
    for call in calls:
        try:
            session.do(call)
        except Mismatch as found:
            return Failure(subject, rows, session.path, found.wrong)
    return None


def _smaller(failure: Failure) -> Iterator[tuple[int, tuple[Call, ...]]]:
    """Candidates, the boldest first: fewer rows, stretches of calls left out, smaller numbers."""
    rows, calls = failure.rows, failure.calls
    if rows > 1:
        yield rows - 1, tuple(_narrowed(call, rows - 1) for call in calls)
    size = len(calls) // 2
    while size:
        for start in range(0, len(calls) - size + 1, size):
            yield rows, calls[:start] + calls[start + size :]
        size //= 2
    for place, call in enumerate(calls):
        for other in _lesser(call):
            yield rows, (*calls[:place], other, *calls[place + 1 :])


def _narrowed(call: Call, rows: int) -> Call:
    """The call without the last row."""
    match call:
        case Prepare(lengths, left):
            return Prepare(lengths[:rows], left[:rows])
        case Trim(tuple() as n, bypass):
            return Trim(n[:rows], bypass)
        case Rows(chosen):
            return Rows(tuple(row for row in chosen if row < rows) or (0,))
        case Extract(row):
            return Extract(min(row, rows - 1))
        case _:
            return call


def _lesser(call: Call) -> Iterator[Call]:
    match call:
        case Window(width) if width > 1:
            yield from (Window(n) for n in dict.fromkeys((1, width // 2, width - 1)) if n < width)
        case Window(1):
            yield Decode()
        case Trim(int(n), bypass) if n > 1:
            yield from (Trim(m, bypass) for m in dict.fromkeys((1, n // 2, n - 1)) if m < n)
        case Trim(tuple() as n, bypass):
            yield Trim(max(n), bypass)
        case Prepare(lengths, left):
            yield from (Prepare(changed, left) for changed in _one_less(lengths))
            yield from (Prepare(lengths, changed) for changed in _one_less(left))
        case _:
            return


def _one_less(numbers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for place, n in enumerate(numbers):
        if n:
            yield (*numbers[:place], n - 1, *numbers[place + 1 :])
