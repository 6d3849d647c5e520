# pyright: basic
"""Stateless policies: forwards of every length, padded in every way, and their gradients, against float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kvgen import model
from kvgen.ir import CachePolicy
from kvgen.verify.clock import Clock
from kvgen.verify.float64 import attention
from kvgen.verify.subject import Subject
from kvgen.verify.tolerance import relative


@dataclass(frozen=True, slots=True)
class Forward:
    """One pass: its columns, and the real positions of each row, None where nothing is padded."""

    width: int
    lengths: tuple[int, ...] | None

    @property
    def rows(self) -> int:
        return 1 if self.lengths is None else len(self.lengths)

    @property
    def row_lengths(self) -> list[int] | None:
        """For the constructor."""
        return None if self.lengths is None else list(self.lengths)


class ForwardFailure(Exception):
    """A forward in which the emitted code and float64 differ. `subject`: a Subject, or a Together."""

    def __init__(self, subject: Any, forward: Forward, words: str) -> None:
        super().__init__(words)
        self.subject, self.forward = subject, forward


def every_forward(policy: CachePolicy) -> Iterator[Forward]:
    """All lengths up to two and a half times what a query sees, with every pair of row lengths."""
    reach = model.reach(policy.retention) or 4
    for width in range(1, 2 * reach + reach // 2 + 3):
        yield Forward(width, None)
        if policy.padding.right:
            pairs = itertools.product(range(width + 1), repeat=2)
            yield from (Forward(width, pair) for pair in pairs)


def edge_forwards(policy: CachePolicy) -> Iterator[Forward]:
    """Lengths on both sides of what a query sees and of the kernels' tiles, up to a few thousand columns."""
    reach = model.reach(policy.retention) or 100
    edges = {1, 2, 17, 127, 128, 129, 300, reach - 1, reach, reach + 1, 2 * reach + 1}
    for width in sorted(n for n in edges if 0 < n <= 2600):
        yield Forward(width, None)
        if policy.padding.right:
            yield Forward(width, (width, width * 2 // 3))


def check_all(
    checked: Callable[[Forward], None], forwards: Iterable[Forward], clock: Clock
) -> tuple[int, bool]:
    """(how many, whether that is all of them). Raises ForwardFailure at the first that differs."""
    done = 0
    for forward in forwards:
        if clock.left() <= 0 and done:
            return done, False
        clock.tell()
        checked(forward)
        done += 1
    return done, True


def check(subject: Subject, forward: Forward) -> None:
    """Raises ForwardFailure where it differs."""
    try:
        Check(
            subject, forward, subject.new_cache(forward.rows, row_lengths=forward.row_lengths)
        ).run()
    except AssertionError as wrong:
        raise ForwardFailure(subject, forward, str(wrong)) from wrong


class Check:
    """One forward through one cache, on numbers that `seed` chooses. Raises AssertionError where it differs."""

    def __init__(self, subject: Subject, forward: Forward, cache: Any, seed: int = 0) -> None:
        self.subject, self.forward, self.policy = subject, forward, subject.policy
        self.cache = cache
        self.dtype = getattr(torch, self.policy.dtype.torch_name)
        self.random = torch.Generator().manual_seed(forward.width + (seed << 32))

    def leaf(self, *shape: int) -> torch.Tensor:
        return self.normal(*shape).to(self.dtype).requires_grad_()

    def normal(self, *shape: int) -> torch.Tensor:
        """The same numbers on every device."""
        return torch.randn(shape, generator=self.random).to(self.subject.device)

    def run(self) -> None:
        heads, rows, width = self.policy.heads, self.forward.rows, self.forward.width
        q = self.leaf(rows, heads.query, width, heads.key_dim)
        k, v = (self.leaf(rows, heads.kv, width, dim) for dim in (heads.key_dim, heads.value_dim))
        sinks = [self.leaf(heads.query)] if self.policy.scores.sink_logits else []
        weights = self.normal(rows, heads.query, width, heads.value_dim)
        leaves = [q, k, v, *sinks]
        given = self._emitted(leaves, weights)
        expected = self._expected(leaves, weights)
        names = ("out", "lse", "q.grad", "k.grad", "v.grad", "sink_logits.grad")
        for name, actual, right in zip(names, given, expected, strict=False):
            self._close(name, actual, right)

    def _emitted(self, leaves: list[torch.Tensor], weights: torch.Tensor) -> list[torch.Tensor]:
        q, k, v, *sinks = leaves
        read = self.cache.append_window(self._nan(k), self._nan(v))
        options = {"sink_logits": sinks[0]} if sinks else {}
        out, lse = read.attend(self._nan(q), return_lse=True, **options)
        gradients = torch.autograd.grad((out.float() * weights).sum(), leaves, allow_unused=True)
        return [out, lse, *self._found(leaves, gradients)]

    def _expected(self, leaves: list[torch.Tensor], weights: torch.Tensor) -> list[torch.Tensor]:
        doubles = [x.detach().double().requires_grad_() for x in leaves]
        q, k, v, *sinks = doubles
        out, lse = attention(self.policy, q, k, v, self._seen(), None, sinks[0] if sinks else None)
        real = self._real()
        out, lse = out * real, lse.masked_fill(~real[..., 0], -torch.inf)
        gradients = torch.autograd.grad((out * weights.double()).sum(), doubles, allow_unused=True)
        return [out, lse, *self._found(doubles, gradients)]

    @staticmethod
    def _found(leaves, gradients) -> list[torch.Tensor]:
        return [
            torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)
        ]

    def _lengths(self) -> tuple[int, ...]:
        return self.forward.lengths or (self.forward.width,)

    def _real(self) -> torch.Tensor:
        """bool [rows, 1, width, 1]"""
        width = self.forward.width
        real = [[i < n for i in range(width)] for n in self._lengths()]
        return torch.tensor(real, device=self.subject.device)[:, None, :, None]

    def _nan(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.forward.lengths is None else torch.where(self._real(), x, torch.nan)

    def _seen(self) -> torch.Tensor:
        """bool [rows, width, width]"""
        retention, width = self.policy.retention, self.forward.width
        one = [[model.visible(retention, p, j) for j in range(width)] for p in range(width)]
        seen = torch.tensor(one, device=self.subject.device)[None].expand(self.forward.rows, -1, -1)
        real = self._real()[:, 0]
        return seen & real & real.mT

    def _close(self, name: str, actual: torch.Tensor, right: torch.Tensor) -> None:
        actual, right = actual.detach().double(), right.detach().double()
        finite = right[right.isfinite()]
        allowed = relative(self.policy.dtype.torch_name) * max(
            1.0, finite.abs().max().item() if finite.numel() else 0
        )
        wrong = ~((actual == right) | ((actual - right).abs() <= allowed))
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{name}{list(at)} is {actual[at]:.6g} where {right[at]:.6g} is right"
            )


def script(failure: ForwardFailure, name: str) -> str:
    """A short script that shows it."""
    subject, forward = failure.subject, failure.forward
    return f'''"""{failure}

{name}, {subject.scale}. Written by `kvgen verify`.
"""

from kvgen.pipeline import check_text
from kvgen.verify import stateless, subject

POLICY = """\\
{subject.text}"""

policy = check_text(POLICY, "small.kv").program.policies[0]
stateless.check(subject.exactly(policy, "{subject.backend}"), stateless.{forward!r})
'''
