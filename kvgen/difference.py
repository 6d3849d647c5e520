"""`kvgen diff OLD NEW`: what a change of policies does to what is seen, to memory, to rollback and to saved files.

Both are asked the same questions, of `kvgen.model`; only answers that differ are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import lcm

from kvgen import model
from kvgen.ir import CachePolicy, Contiguous, Fixed, Model, Program, Retention, Ring, Stateless
from kvgen.retention import corners, covers, sight

_MOST_LAYERS = 1 << 16  # looked at one by one


@dataclass(frozen=True, slots=True)
class Change:
    """One answer that differs. `note`: what follows from it."""

    topic: str
    old: str
    new: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """The changes of one policy or model, in the order in which they matter."""

    title: str
    changes: tuple[Change, ...]


def difference(old: Program, new: Program) -> tuple[Section, ...]:
    """Nothing where both mean the same, however they are written."""
    sections = [*_policies(old, new), *_models(old, new)]
    return tuple(section for section in sections if section.changes)


def text(sections: Iterable[Section]) -> str:
    return "\n".join("\n".join(_lines(section)) + "\n" for section in sections)


def _lines(section: Section) -> Iterator[str]:
    yield section.title
    width = max(len(change.topic) for change in section.changes)
    for change in section.changes:
        words = f"{change.old} -> {change.new}" if change.old or change.new else change.note
        yield f"  {change.topic:<{width}}  {words}"
        if change.note and words != change.note:
            yield f"  {'':<{width}}  {change.note}"


# -- policies


def _policies(old: Program, new: Program) -> Iterator[Section]:
    olds = {policy.name: policy for policy in old.policies}
    news = {policy.name: policy for policy in new.policies}
    for name, policy in news.items():
        title = f"policy {name}  {new.stem}.kv:{policy.line}"
        if name in olds:
            yield Section(title, tuple(_policy(olds[name], policy)))
        else:
            yield Section(title, (Change("policy", "", "", "new"),))
    for name in sorted(olds.keys() - news.keys()):
        yield Section(f"policy {name}", (Change("policy", "", "", "gone, and its class with it"),))


def _policy(old: CachePolicy, new: CachePolicy) -> Iterator[Change]:
    yield from _seen(old.retention, new.retention)
    yield from _asked(old, new)
    yield from _saved(old, new)


def _asked(old: CachePolicy, new: CachePolicy) -> Iterator[Change]:
    """Questions that one policy answers alone."""
    for topic, ask in _QUESTIONS:
        if ask(old) != ask(new):
            yield Change(topic, ask(old), ask(new), _note(topic, old, new))


def _heads(policy: CachePolicy) -> str:
    heads = policy.heads
    return f"query {heads.query} kv {heads.kv}, dim key {heads.key_dim} value {heads.value_dim}"


def _scores(policy: CachePolicy) -> str:
    scores = policy.scores
    parts = [f"scale {scores.scale:g}" if scores.scale is not None else "scale 1/sqrt(key dim)"]
    parts += [f"softcap {scores.softcap:g}"] if scores.softcap is not None else []
    parts += ["a sink logit a head"] if scores.sink_logits else []
    return ", ".join(parts)


def _storage(policy: CachePolicy) -> str:
    slots = model.capacity(policy)
    match policy.storage:
        case Ring(slack):
            return f"a ring, {slots:,} slots with {slack:,} of slack"
        case Fixed(None):
            return "as many slots as `capacity` says"
        case Fixed():
            return f"{slots:,} slots, allocated once"
        case Contiguous():
            return "as many slots as tokens"
        case _:
            return "nothing stored"


def _bytes(policy: CachePolicy) -> str:
    token, slots = model.bytes_per_token(policy.heads, policy.dtype), model.capacity(policy)
    if isinstance(policy.storage, Stateless):
        return "none"
    return f"{token:,} a token" if slots is None else f"{token * slots:,} a row"


def _rollback(policy: CachePolicy) -> str:
    always = model.always_trimmable(policy)
    if isinstance(policy.storage, Stateless):
        return "nothing to take back"
    if always == 0:
        return "none"
    return "any number of tokens" if always is None else f"{always:,} tokens at any time"


def _bypass(policy: CachePolicy) -> str:
    return f"{policy.trim.bypass_tokens:,} unasked" if policy.trim.bypass_tokens else "none"


def _padding(policy: CachePolicy) -> str:
    sides = [side for side in ("left", "right") if getattr(policy.padding, side)]
    return " and ".join(sides) or "none"


_QUESTIONS: tuple[tuple[str, Callable[[CachePolicy], str]], ...] = (
    ("heads", _heads),
    ("dtype", lambda policy: policy.dtype.value),
    ("scores", _scores),
    ("storage", _storage),
    ("bytes", _bytes),
    ("rollback", _rollback),
    ("bypass", _bypass),
    ("padding", _padding),
)


def _note(topic: str, old: CachePolicy, new: CachePolicy) -> str:
    match topic:
        case "bytes":
            return _ratio(
                model.row_bytes(old, model.LONG_ROW), model.row_bytes(new, model.LONG_ROW)
            )
        case "scores":
            return "the same tokens are seen, with other weights"
        case "padding":
            less = (old.padding.left and not new.padding.left) or (
                old.padding.right and not new.padding.right
            )
            return "batches padded as before are refused" if less else ""
        case "rollback" | "bypass":
            less = (old.trim.bypass_tokens > new.trim.bypass_tokens) or _less(old, new)
            return "rollbacks that were allowed are refused" if less else ""
        case _:
            return ""


def _less(old: CachePolicy, new: CachePolicy) -> bool:
    before, after = model.always_trimmable(old), model.always_trimmable(new)
    return after is not None and (before is None or after < before)


def _ratio(old: int, new: int) -> str:
    if not old or not new or old == new:
        return ""
    more, ratio = ("as much", new / old) if new > old else ("less", old / new)
    if ratio < 1.005:
        return f"hardly {'more' if new > old else 'less'} for a row of {model.LONG_ROW:,} tokens"
    return f"{ratio:,.3g} times {more} for a row of {model.LONG_ROW:,} tokens"


# -- what is seen


def _seen(old: Retention, new: Retention) -> Iterator[Change]:
    """Where queries begin to see something else, and whether they see more or less."""
    places = sorted({*corners(old), *corners(new)})
    differing = [p for p in places if sight(old, p) != sight(new, p)]
    if not differing:
        return
    gained = any(covers(new, old, p) for p in differing)
    lost = any(covers(old, new, p) for p in differing)
    both = not all(covers(new, old, p) or covers(old, new, p) for p in differing)
    yield Change(
        "seen",
        _limits(old),
        _limits(new),
        f"from query {differing[0]:,} on: {_trend(gained, lost, both)}",
    )


def _trend(gained: bool, lost: bool, both: bool) -> str:
    if both or (gained and lost):
        return "some tokens are seen that were not, and some no more"
    return "all that was seen, and more" if gained else "less than was seen"


def _limits(retention: Retention) -> str:
    parts = [
        "window full" if retention.window_tokens is None else f"window {retention.window_tokens:,}"
    ]
    parts += [f"chunk {retention.chunk_tokens:,}"] if retention.chunk_tokens is not None else []
    parts += [f"sinks {retention.sink_tokens:,}"] if retention.sink_tokens else []
    return ", ".join(parts)


# -- what was saved


def _saved(old: CachePolicy, new: CachePolicy) -> Iterator[Change]:
    """The parts of a cache's signature."""
    if isinstance(old.storage, Stateless) or isinstance(new.storage, Stateless):
        if type(old.storage) is not type(new.storage):
            yield Change("saved files", "", "", "a stateless cache saves and loads none")
        return
    differing = [name for name, ask in _SIGNATURE if ask(old) != ask(new)]
    if differing:
        yield Change(
            "saved files",
            "",
            "",
            f"of the old cache are refused by the new one: other {' and '.join(differing)}",
        )


_SIGNATURE: tuple[tuple[str, Callable[[CachePolicy], object]], ...] = (
    ("heads", lambda p: (p.heads.kv, p.heads.key_dim, p.heads.value_dim)),
    ("dtype", lambda p: p.dtype),
    ("limits", lambda p: p.retention),
    ("slots", lambda p: (type(p.storage), model.capacity(p))),
)


# -- models


def _models(old: Program, new: Program) -> Iterator[Section]:
    olds = {declared.name: declared for declared in old.models}
    news = {declared.name: declared for declared in new.models}
    for name, declared in news.items():
        title = f"model {name}  {new.stem}.kv:{declared.line}"
        if name in olds:
            yield Section(title, tuple(_model(old, olds[name], new, declared)))
        else:
            yield Section(title, (Change("model", "", "", "new"),))
    for name in sorted(olds.keys() - news.keys()):
        yield Section(f"model {name}", (Change("model", "", "", "gone, and its class with it"),))


def _model(old: Program, before: Model, new: Program, after: Model) -> Iterator[Change]:
    if before.layers != after.layers:
        yield Change("layers", f"{before.layers:,}", f"{after.layers:,}")
    first, moved = _moved(before, after)
    if moved:
        yield Change("policies", f"layer {first} {before.policy_of(first)}", after.policy_of(first),
                     f"{moved} have another policy")  # fmt: skip
    if before.shares != after.shares:
        yield Change("shares", f"{len(before.shares)} layers", f"{len(after.shares)}",
                     "layers that share own no cache")  # fmt: skip
    stored = (
        model.model_bytes(old, before, model.LONG_ROW),
        model.model_bytes(new, after, model.LONG_ROW),
    )
    if stored[0] != stored[1]:
        yield Change("bytes", f"{stored[0]:,}", f"{stored[1]:,}", _ratio(*stored))


def _moved(before: Model, after: Model) -> tuple[int, str]:
    """(the first layer whose policy is another, how many there are). Both patterns begin again after a period."""
    layers = min(before.layers, after.layers)
    period = min(layers, lcm(before.period, after.period))
    looked_at = min(period, _MOST_LAYERS)
    moved = [i for i in range(looked_at) if before.policy_of(i) != after.policy_of(i)]
    if not moved:
        return 0, ""
    if looked_at < period:
        return moved[0], f"{len(moved):,} layers or more"
    whole, rest = divmod(layers, period)
    return moved[0], f"{whole * len(moved) + sum(i < rest for i in moved):,} layers"
