"""What two rows of a batch hold, call after call: a padded prefill, the ring's wrap, a verify window, its rollback.

`model` says what each call leaves; here the calls are chosen so that all of it happens within a dozen lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvgen import model
from kvgen.draw.kinds import Kind, of_token
from kvgen.ir import CachePolicy, Ring

LINEAR_SLOTS = 12  # shown of storage that grows


@dataclass(frozen=True, slots=True)
class Cell:
    """A place that holds the token at `position`, or none. `fresh`: since the last call."""

    kind: Kind
    position: int | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Strip:
    """One row: its slots, and the columns that wait beside its ring."""

    slots: tuple[Cell, ...]
    beside: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One call and what it leaves of each row."""

    call: str
    remark: str
    rows: tuple[Strip, ...]


def life(policy: CachePolicy) -> tuple[Step, ...]:
    """Empty for what stores nothing."""
    return tuple(_Life(policy).steps())


@dataclass(slots=True)
class _Row:
    state: model.Row = field(default_factory=model.Row)
    written: int = 0  # positions below are in the slots
    beside: tuple[int | None, ...] = ()  # positions of the columns beside them, None: padding
    before: frozenset[int] = frozenset()


class _Life:
    def __init__(self, policy: CachePolicy) -> None:
        self.policy = policy
        self.rows = [_Row(), _Row()]
        self.ring = _ring(policy)
        self.shown = model.capacity(policy) or LINEAR_SLOTS

    def steps(self) -> Iterator[Step]:
        yield from self.prefill()
        yield from self.decode(2)
        yield from self.verify()
        if self.ring:
            yield from self.wait()
            yield from self.decode(1)

    # -- the calls

    def prefill(self) -> Iterator[Step]:
        """As many columns as wait beside a ring, or as show a few free slots."""
        columns = max(1, min(self.ring, self.shown - 1) - 1) if self.ring else self.shown // 2 - 1
        short = max(1, columns - max(1, columns // 4))
        padding = self.policy.padding
        sizes = [columns, short if padding.left or padding.right else columns]
        left = columns - sizes[1] if padding.left else 0
        for row, size, pad in zip(self.rows, sizes, (0, left), strict=True):
            self.append(row, columns, size, pad, prepared=True)
        words = "B's padding has no slot" if short < columns else ""
        if sizes[0] == sizes[1]:
            words = "one column is one token"
        yield self.step(_window(columns), self.where(columns, words))

    def decode(self, times: int) -> Iterator[Step]:
        for _ in range(times):
            waited = any(row.beside for row in self.rows)
            lost = self.lost(1)
            for row in self.rows:
                self.settle(row)
                row.state = model.append_decode(self.policy, row.state)
                row.written = row.state.offset
            words = "what waited is written first" if waited else ""
            if lost and not waited:
                words = f"A wraps: {lost} makes room for {self.rows[0].state.offset - 1}"
            yield self.step("append_decode", words or "one token a row, in place")

    def verify(self) -> Iterator[Step]:
        """A draft of as many tokens as can always be taken back, and the token before it."""
        always = model.always_trimmable(self.policy)
        draft = min(3, 3 if always is None else max(1, always - 1))
        columns = draft + 1
        for row in self.rows:
            self.append(row, columns, columns, 0, prepared=False)
        yield self.step(_window(columns), self.where(columns, f"a draft of {draft}"))
        if all(model.trimmable(self.policy, row.state, draft) for row in self.rows):
            yield self.trim(draft, "exact: nothing the next query sees was lost")
        yield from self.decode(1)

    def wait(self) -> Iterator[Step]:
        """More than fits in place: they wait, so all of them can go again."""
        assert self.ring is not None and isinstance(self.policy.storage, Ring)
        columns = min(self.ring, self.policy.storage.slack_slots + 4)
        if model.in_place(self.policy, columns):
            return
        for row in self.rows:
            self.append(row, columns, columns, 0, prepared=False)
        yield self.step(_window(columns), self.where(columns, ""))
        back = columns - 1
        if all(model.trimmable(self.policy, row.state, back) for row in self.rows):
            yield self.trim(back, "nothing was overwritten yet")

    def trim(self, tokens: int, words: str) -> Step:
        for row in self.rows:
            row.state = model.trim(row.state, tokens)
            row.written = min(row.written, row.state.offset)
        return self.step(f"trim({tokens})", words)

    # -- one row

    def append(self, row: _Row, columns: int, tokens: int, left: int, prepared: bool) -> None:
        self.settle(row)
        start = row.state.offset
        row.state = model.append_window(self.policy, row.state, columns, tokens, prepared)
        if not row.state.waiting:
            row.written = row.state.offset
            return
        after = columns - left - tokens
        row.beside = (*[None] * left, *range(start, start + tokens), *[None] * after)

    def settle(self, row: _Row) -> None:
        row.state = model.settled(self.policy, row.state)
        row.written, row.beside = row.state.offset, ()

    def lost(self, tokens: int) -> int | None:
        """The position that row A's next token overwrites."""
        state = self.rows[0].state
        slot = model.slot(self.policy, state.offset + tokens - 1)
        held = model.held_in_slot(self.policy, slot, state.offset)
        return held if held is not None and held >= state.oldest else None

    # -- as cells

    def where(self, columns: int, words: str) -> str:
        waits = any(row.beside for row in self.rows)
        place = "all wait beside the ring" if waits else "in place" if columns > 1 else ""
        return "; ".join(part for part in (words, place) if part)

    def step(self, call: str, remark: str) -> Step:
        return Step(call, remark, tuple(map(self.strip, self.rows)))

    def strip(self, row: _Row) -> Strip:
        found = [self.held(row, slot) for slot in range(self.shown)]
        query, before = row.state.offset, row.before
        row.before = frozenset(p for p in (*found, *row.beside) if p is not None and p < query)

        def cell(p: int | None, nothing: Kind) -> Cell:
            if p is None:
                return Cell(nothing)
            if p >= query:
                return Cell(Kind.EMPTY)  # taken back
            return Cell(of_token(self.policy, query, p), p, p not in before)

        slots = tuple(cell(p, Kind.EMPTY) for p in found)
        return Strip(slots, tuple(cell(p, Kind.PADDING) for p in row.beside))

    def held(self, row: _Row, slot: int) -> int | None:
        """What a slot holds: the newest position written there, unless that was taken back."""
        position = model.held_in_slot(self.policy, slot, row.written)
        if position is None or position < self.policy.retention.sink_tokens:
            return position
        return position if position >= row.state.oldest else None


def _ring(policy: CachePolicy) -> int | None:
    if isinstance(policy.storage, Ring):
        return model.ring_slots(policy.retention, policy.storage)
    return None


def _window(columns: int) -> str:
    return "append_window(1 column)" if columns == 1 else f"append_window({columns} columns)"
