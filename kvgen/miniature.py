"""A policy made small: the same clauses in small numbers, to be drawn, or walked through exhaustively.

Nothing a policy does depends on how large its numbers are, only on how they relate, and the relations stay: what is 0 stays
0, what is less stays less, the bypass fits the slack. What was changed is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from kvgen import model
from kvgen.ir import CachePolicy, Fixed, Retention, Ring, Storage


@dataclass(frozen=True, slots=True)
class Shrunk:
    """One number of a policy as declared and as it is in the small one."""

    clause: str
    declared: int
    small: int


@dataclass(frozen=True, slots=True)
class Scaled:
    """`policy` is the small one; no `changes` if it was small already."""

    policy: CachePolicy
    changes: tuple[Shrunk, ...]

    def __str__(self) -> str:
        return ", ".join(f"{one.clause} {one.declared:,} as {one.small}" for one in self.changes)


def scaled(policy: CachePolicy, reach: int, least: int) -> Scaled:
    """`policy` with what a query sees brought down to `reach` and the rest in proportion.

    `least`: sinks, slack and bypass stay at least this, or as they are: 4 sinks of a window of 4096 would be none.
    """
    small = _Shrinker(policy, reach, least).policy()
    numbers = dict(_numbers(small))
    pairs = ((clause, n, numbers[clause]) for clause, n in _numbers(policy))
    return Scaled(small, tuple(Shrunk(*pair) for pair in pairs if pair[1] != pair[2]))


@dataclass(frozen=True, slots=True)
class _Shrinker:
    declared: CachePolicy
    reach: int
    least: int

    @property
    def factor(self) -> Fraction:
        storage = self.declared.storage
        slots = storage.slots if isinstance(storage, Fixed) else None
        measure = model.reach(self.declared.retention) or slots or self.reach
        return min(Fraction(1), Fraction(self.reach, measure))

    def policy(self) -> CachePolicy:
        return replace(
            self.declared,
            retention=self.retention(),
            storage=self.storage(),
            trim=replace(self.declared.trim, bypass_tokens=self.few(self.bypass)),
        )

    @property
    def bypass(self) -> int:
        return self.declared.trim.bypass_tokens

    def retention(self) -> Retention:
        declared = self.declared.retention
        window, sinks = self.limit(declared.window_tokens), self.few(declared.sink_tokens)
        if declared.window_tokens and window and declared.sink_tokens < declared.window_tokens:
            sinks = min(sinks, window - 1)
        return Retention(window, sinks, self.limit(declared.chunk_tokens))

    def limit(self, tokens: int | None) -> int | None:
        """A window or a chunk; of both, the larger stays larger, within sight."""
        if tokens is None:
            return None
        larger = tokens > (model.reach(self.declared.retention) or tokens)
        most = 2 * self.reach if larger else self.reach
        return max(1 + larger, min(most, round(tokens * self.factor)))

    def few(self, tokens: int) -> int:
        return min(self.reach, max(min(tokens, self.least), round(tokens * self.factor)))

    def storage(self) -> Storage:
        match self.declared.storage:
            case Ring(slack):
                return Ring(self.few(slack))
            case Fixed(int(slots)):
                return Fixed(max(1, min(4 * self.reach, round(slots * self.factor))))
            case other:
                return other


def _numbers(policy: CachePolicy) -> Iterator[tuple[str, int]]:
    """Those that a policy has, by the word before them."""
    retention, storage = policy.retention, policy.storage
    if retention.window_tokens is not None:
        yield "window", retention.window_tokens
    yield "sinks", retention.sink_tokens
    if retention.chunk_tokens is not None:
        yield "chunk", retention.chunk_tokens
    if isinstance(storage, Ring):
        yield "slack", storage.slack_slots
    if isinstance(storage, Fixed) and storage.slots is not None:
        yield "slots", storage.slots
    yield "bypass", policy.trim.bypass_tokens
