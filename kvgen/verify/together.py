# pyright: basic
"""The layers of a model together: one object acts on all of them, layers read a donor's keys, masks are shared.

Each layer that owns a cache has a `Session` with a judge of its own; what the model's object does to all of them at once is
done to the judges one by one, and must be done by all or by none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kvgen import model as rules
from kvgen.ir import CachePolicy, DType, Fixed, Heads, Model, Padding, Program, Ring, Stateless
from kvgen.loading import load_text
from kvgen.miniature import scaled
from kvgen.naming import class_name
from kvgen.verify.calls import (
    Call,
    Clone,
    Decode,
    Extract,
    Finalize,
    Merge,
    Prepare,
    Reload,
    Reset,
    Rows,
    Trim,
    Window,
)
from kvgen.verify.reference import ReferenceCache
from kvgen.verify.session import Mismatch, Session, Wrong
from kvgen.verify.subject import ROOM, SMALL, Subject, spelt

KEPT = 2  # layers of each policy, and layers that share
QUERY_HEADS = 4


@dataclass(frozen=True, slots=True)
class Together:
    """A small model. `layers`: the policy of each, `donors`: the layer whose cache each reads.

    `policy` is the one whose edges the search is for; its padding is what all of them allow.
    """

    name: str
    policy: CachePolicy
    layers: tuple[CachePolicy, ...]
    donors: tuple[int, ...]
    scale: str
    text: str
    caches_class: Any
    backend: str

    @property
    def owners(self) -> list[int]:
        return [layer for layer, donor in enumerate(self.donors) if layer == donor]

    @property
    def capacity(self) -> int | None:
        """For the constructor, where a policy leaves it open."""
        if not any(_is_open(policy) for policy in self.layers):
            return None
        return ROOM + 2 * max(rules.reach(policy.retention) or 0 for policy in self.layers)

    @property
    def merged_tokens(self) -> int:
        return min(min(2, rules.capacity(policy) or 2) for policy in self.layers)

    @property
    def device(self) -> str:
        return self.layer(self.owners[0]).device

    def new_caches(self, rows: int) -> Any:
        options = {} if self.capacity is None else {"capacity": self.capacity}
        return self.caches_class(rows, backend=self.backend, device=self.device, **options)

    def layer(self, layer: int) -> Subject:
        """A layer's cache as a subject of its own."""
        return Subject(self.layers[layer], self.scale, self.text, None, self.backend)

    def judge(self, layer: int, rows: int) -> ReferenceCache:
        policy = self.layers[layer]
        return ReferenceCache(policy, rows, self.capacity if _is_open(policy) else None)

    def session(self, rows: int, seed: int = 0) -> Rehearsal:
        return Rehearsal(self, rows, seed)


def _is_open(policy: CachePolicy) -> bool:
    return isinstance(policy.storage, Fixed) and policy.storage.slots is None


# -- making a model small


def together(program: Program, model: Model, backend: str) -> Together | None:
    """None for a model with stateless layers, which keep nothing that an operation could act on."""
    kept = _kept(model)
    donors = {share.layer: share.donor for share in model.shares}
    policies = {name: program.policy(name) for name in _names(model, kept, donors)}
    if any(isinstance(policy.storage, Stateless) for policy in policies.values()):
        return None
    small = {name: _small(policy) for name, policy in policies.items()}
    layers = tuple(small[model.policy_of(donors.get(layer, layer))] for layer in kept)
    own = tuple(kept.index(donors.get(layer, layer)) for layer in kept)
    text = _text(model.name, small, layers, own)
    caches = getattr(load_text(text, "together"), f"{class_name(model.name)}Caches")
    numbers = ", ".join(map(str, kept))
    scale = (
        f"layers {numbers} of {model.layers}, float32, few heads, what a query sees at most {SMALL}"
    )
    return Together(model.name, _lead(layers), layers, own, scale, text, caches, backend)


def _kept(model: Model) -> list[int]:
    """Two layers of each policy that own their keys, and two that do not with their donors."""
    sharing = {share.layer: share.donor for share in model.shares}
    counts: dict[str, int] = {}
    kept: set[int] = set()
    for layer in range(min(model.layers, KEPT * sum(entry.count for entry in model.repeat))):
        name = model.policy_of(layer)
        if layer not in sharing and counts.get(name, 0) < KEPT:
            counts[name] = counts.get(name, 0) + 1
            kept.add(layer)
    for layer, donor in list(sharing.items())[:1] + list(sharing.items())[1:][-1:]:
        kept |= {layer, donor}
    return sorted(kept)


def _names(model: Model, kept: list[int], donors: dict[int, int]) -> list[str]:
    return list(dict.fromkeys(model.policy_of(donors.get(layer, layer)) for layer in kept))


def _small(policy: CachePolicy) -> CachePolicy:
    heads = policy.heads
    query = min(heads.query, QUERY_HEADS)
    few = 1 if heads.kv == 1 or query < QUERY_HEADS else 2
    kv = query if heads.kv == heads.query else few
    dims = (4, 4) if heads.key_dim == heads.value_dim else (4, 6)
    tiny = replace(policy, dtype=DType.F32, heads=Heads(query, kv, *dims))
    return scaled(tiny, SMALL, 1).policy


def _text(
    name: str, small: dict[str, CachePolicy], layers: tuple[CachePolicy, ...], own: tuple[int, ...]
) -> str:
    policies = "\n".join(spelt(policy).removeprefix("kvgen 1\n\n") for policy in small.values())
    shares = "".join(
        f"    share    {layer} from {donor}\n" for layer, donor in enumerate(own) if layer != donor
    )
    repeat = ", ".join(policy.name for policy in layers)
    clauses = f"    layers   {len(layers)}\n    repeat   {repeat}\n{shares}"
    return f"kvgen 1\n\n{policies}\nmodel {name} {{\n{clauses}}}\n"


def _lead(layers: tuple[CachePolicy, ...]) -> CachePolicy:
    rings = [policy for policy in layers if isinstance(policy.storage, Ring)]
    lead = max(rings or layers, key=lambda policy: policy.trim.bypass_tokens)
    sides = (
        all(policy.padding.left for policy in layers),
        all(policy.padding.right for policy in layers),
    )
    return replace(lead, padding=Padding(*sides))


# -- driving it


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
        other.layers = {}
        for layer, session in self.layers.items():
            twin = object.__new__(Session)
            twin.__dict__.update(session.__dict__, held=[])
            other.layers[layer] = twin
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
                    session._append(call)
                else:
                    held = session._judge(*session.last)
                    session._compare(held)
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
            self._must_refuse(lambda: self._done(call, spare), error)
            return False
        try:
            self.caches = self._done(call, spare)
        except Exception as error:
            words = f"{call} raises {type(error).__name__}: {error}"
            raise Mismatch(Wrong("raised", words)) from error
        for layer, session in self.layers.items():
            session.judge, session.cache = judges[layer], self.caches.layers[layer]
        return True

    def _must_refuse(self, act: Callable[[], Any], error: Exception) -> None:
        try:
            act()
        except (ValueError, RuntimeError):
            return
        raise Mismatch(Wrong("accepted", f"{self.path[-1]} must be refused: {error}"))

    def _spare(self) -> tuple[Any, dict[int, ReferenceCache]]:
        """A model of one row with a few tokens in each layer."""
        caches, judges = self.subject.new_caches(1), {}
        for layer, session in self.layers.items():
            k, v, columns = session._tokens(1, self.subject.merged_tokens)
            caches.layers[layer].append_window(k, v)
            judges[layer] = self.subject.judge(layer, 1)
            judges[layer].append_window(columns)
        return caches, judges

    def _done(self, call: Call, spare: Any) -> Any:
        """The call on the model's object: what to go on with."""
        caches = self.caches
        match call:
            case Extract(row):
                return caches.extract_row(row)
            case Clone():
                return caches.clone()
            case Merge():
                return type(caches).merge_rows([caches, spare[0]])
            case Reload():
                fresh = self.subject.new_caches(caches.batch_size)
                fresh.load_state_dict(caches.state_dict())
                return fresh
            case _:
                _in_place(call, caches)
                return caches

    # -- what holds at every moment

    def _check(self) -> None:
        for layer, session in self.layers.items():
            session.path = self.path
            with _of(layer):
                session.check()
                for held in session.held:
                    session._compare(held)
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


class _of:
    """Says which layer a mismatch is of."""

    def __init__(self, layer: int) -> None:
        self.layer = layer

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Mismatch):
            words = f"layer {self.layer}: {error.wrong.words}"
            raise Mismatch(replace(error.wrong, words=words)) from error


def _judged(
    call: Call, judge: ReferenceCache, subject: Together, layer: int, spare: Any
) -> ReferenceCache:
    """The call on one layer's judge."""
    match call:
        case Trim(n, bypass):
            own = bypass and subject.layers[layer].trim.bypass_tokens > 0
            judge.trim(list(n) if isinstance(n, tuple) else n, bypass=own)
        case Extract(row):
            return judge.extract_row(row)
        case Clone():
            return judge.clone()
        case Merge():
            return ReferenceCache.merge_rows([judge, spare[1][layer]])
        case Reload():
            fresh = subject.judge(layer, judge.batch_size)
            fresh.load(judge.saved())
            return fresh
        case _:
            _in_place(call, judge)
    return judge


def _in_place(call: Call, side: Any) -> None:
    """What changes a model's caches, or a judge, where it stands."""
    match call:
        case Prepare(lengths, left):
            side.prepare_prefill(list(lengths), list(left) if any(left) else None)
        case Finalize():
            side.finalize_prefill()
        case Trim(n, bypass):
            side.trim(list(n) if isinstance(n, tuple) else n, bypass=bypass)
        case Rows(rows):
            side.filter_rows(list(rows))
        case Reset():
            side.reset()
        case _:
            raise AssertionError(call)


# -- as a script


def replay(text: str, name: str, backend: str, rows: int, calls: tuple[Call, ...]) -> None:
    """Do the calls on a model; AssertionError where it does something else than its layers should."""
    from kvgen.pipeline import check_text

    program = check_text(text, "together.kv").program
    assert program is not None
    model = next(one for one in program.models if one.name == name)
    layers = tuple(
        program.policy(entry.policy) for entry in model.repeat for _ in range(entry.count)
    )
    shares = {share.layer: share.donor for share in model.shares}
    own = tuple(shares.get(layer, layer) for layer in range(len(layers)))
    caches = getattr(load_text(text, "together"), f"{class_name(name)}Caches")
    subject = Together(name, _lead(layers), layers, own, "as written", text, caches, backend)
    rehearsal = subject.session(rows)
    try:
        for call in calls:
            rehearsal.do(call)
    except Mismatch as found:
        raise AssertionError(found.wrong.words) from found


def script(failure: Any, name: str) -> str:
    """A failure as a short script that shows it."""
    return "\n".join(_script(failure, name)) + "\n"


def _script(failure: Any, name: str) -> Iterator[str]:
    subject = failure.subject
    kinds = sorted({type(call).__name__ for call in failure.calls})
    yield f'"""{failure.wrong.words}\n\n{name}, {subject.scale}. Written by `kvgen verify`.\n"""\n'
    yield "from kvgen.verify import together"
    yield f"from kvgen.verify.calls import {', '.join(kinds)}\n"
    yield f'MODEL = """\\\n{subject.text}"""\n'
    yield "CALLS = ("
    yield from (f"    {call!r}," for call in failure.calls)
    yield ")"
    yield f'together.replay(MODEL, "{subject.name}", "{subject.backend}", {failure.rows}, CALLS)'
