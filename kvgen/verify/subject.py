"""What is verified: a policy at some size, spelt as a file of its own, compiled, and its class on one backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kvgen import model
from kvgen.backends import BACKENDS
from kvgen.ir import CachePolicy, DType, Fixed, Heads, Ring, Stateless
from kvgen.loading import load_text
from kvgen.miniature import Scaled, scaled
from kvgen.naming import class_name

SMALL = 3  # what a query sees in the exhaustive walk
LARGE = 8192  # what it sees at most at true size: beyond, the computations are too long
MUCH = 1024  # of what a query sees, from which on fewer heads must do
ROOM = 40  # slots of `storage fixed` without a number, beside twice what a query sees


@dataclass(frozen=True, slots=True)
class Subject:
    """`scale` says how it differs from the policy as declared."""

    policy: CachePolicy
    scale: str
    text: str
    cache_class: Any
    backend: str

    @property
    def capacity(self) -> int | None:
        """For the constructor, where the policy leaves it open."""
        storage, reach = self.policy.storage, model.reach(self.policy.retention) or 0
        if not isinstance(storage, Fixed) or storage.slots is not None:
            return None
        return ROOM + 2 * reach

    @property
    def merged_tokens(self) -> int:
        """Of the row that a merge adds."""
        return min(2, model.capacity(self.policy) or 2)

    @property
    def device(self) -> str:
        """Where its tensors are: kernels for a GPU run on one, and on a CPU only where they are interpreted."""
        import torch

        on_gpu = "cuda" in BACKENDS[self.backend].devices
        return "cuda" if on_gpu and torch.cuda.is_available() else "cpu"

    def session(self, rows: int, seed: int = 0) -> Any:
        """It and its judge, to be driven together."""
        from kvgen.verify.session import Session

        return Session(self, rows, seed)

    def new_cache(self, rows: int, **options: Any) -> Any:
        if self.capacity is not None:
            options["capacity"] = self.capacity
        return self.cache_class(rows, backend=self.backend, device=self.device, **options)


def small(policy: CachePolicy, backend: str) -> Subject:
    """With the same clauses in small numbers, and float32, so that a wrong token shows."""
    heads = policy.heads
    kv = min(heads.kv, 2)
    dims = (4, 4) if heads.key_dim == heads.value_dim else (4, 6)
    tiny = replace(policy, dtype=DType.F32, heads=Heads(kv * min(heads.group, 2), kv, *dims))
    return _subject(scaled(tiny, SMALL, 1), backend)


def true_size(policy: CachePolicy, backend: str) -> Subject:
    """As declared, with two kv heads of four query heads at most, one of two where a query sees much."""
    heads = policy.heads
    kv, group = (2, 4) if (model.reach(policy.retention) or 0) <= MUCH else (1, 2)
    kv, group = min(heads.kv, kv), min(heads.group, group)
    fewer = replace(heads, query=kv * group, kv=kv)
    return _subject(scaled(replace(policy, heads=fewer), LARGE, LARGE), backend)


def exactly(policy: CachePolicy, backend: str) -> Subject:
    """The policy as it is."""
    return _subject(Scaled(policy, ()), backend)


def _subject(scale: Scaled, backend: str) -> Subject:
    changes = str(scale) or "as declared"
    text = spelt(scale.policy)
    name = f"{class_name(scale.policy.name)}Cache"
    return Subject(scale.policy, changes, text, getattr(load_text(text, "verified"), name), backend)


# -- back to text


def spelt(policy: CachePolicy) -> str:
    """A file with this policy alone."""
    clauses = "".join(f"    {clause}\n" for clause in _clauses(policy))
    return f"kvgen 1\n\npolicy {policy.name} {{\n{clauses}}}\n"


def _clauses(policy: CachePolicy) -> Iterator[str]:
    heads, scores, retention = policy.heads, policy.scores, policy.retention
    yield f"heads    query {heads.query} kv {heads.kv}"
    same = heads.key_dim == heads.value_dim
    yield (
        f"dim      {heads.key_dim}"
        if same
        else f"dim      key {heads.key_dim} value {heads.value_dim}"
    )
    yield f"dtype    {policy.dtype.value}"
    if scores.scale is not None:
        yield f"scale    {scores.scale!r}"
    if scores.softcap is not None:
        yield f"softcap  {scores.softcap!r}"
    if scores.sink_logits:
        yield "sink_logits"
    yield f"window   {retention.window_tokens or 'full'}"
    if retention.sink_tokens:
        yield f"sinks    {retention.sink_tokens}"
    if retention.chunk_tokens is not None:
        yield f"chunk    {retention.chunk_tokens}"
    yield from _storage(policy)
    sides = [side for side in ("left", "right") if getattr(policy.padding, side)]
    yield f"padding  {' '.join(sides) or 'none'}"


def _storage(policy: CachePolicy) -> Iterator[str]:
    match policy.storage:
        case Stateless():
            yield "stateless"
            return
        case Ring(slack):
            yield f"storage  ring slack {slack}"
        case Fixed(slots):
            yield f"storage  fixed {slots or ''}".rstrip()
        case _:
            yield "storage  contiguous"
    bypass = f" bypass {policy.trim.bypass_tokens}" if policy.trim.bypass_tokens else ""
    yield f"trim     guarded{bypass}" if policy.trim.guarded else "trim     off"
