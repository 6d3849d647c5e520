"""A model made small: a few layers of each policy, compiled as a file of its own, and its class on one backend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvgen import model as rules
from kvgen.ir import CachePolicy, DType, Fixed, Heads, Model, Padding, Program, Ring, Stateless
from kvgen.loading import load_text
from kvgen.miniature import scaled
from kvgen.naming import class_name
from kvgen.pipeline import check_text
from kvgen.verify.reference import ReferenceCache
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
    def stateless(self) -> bool:
        """All of its layers."""
        return isinstance(self.policy.storage, Stateless)

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

    def new_caches(self, rows: int, **options: Any) -> Any:
        if self.capacity is not None:
            options["capacity"] = self.capacity
        return self.caches_class(rows, backend=self.backend, device=self.device, **options)

    def layer(self, layer: int) -> Subject:
        """A layer's cache as a subject of its own."""
        return Subject(self.layers[layer], self.scale, self.text, None, self.backend)

    def judge(self, layer: int, rows: int) -> ReferenceCache:
        policy = self.layers[layer]
        return ReferenceCache(policy, rows, self.capacity if _is_open(policy) else None)

    def session(self, rows: int, seed: int = 0) -> Any:
        """It and the judges of its layers, to be driven together."""
        from kvgen.verify.rehearsal import Rehearsal

        return Rehearsal(self, rows, seed)


def _is_open(policy: CachePolicy) -> bool:
    return isinstance(policy.storage, Fixed) and policy.storage.slots is None


# -- making a model small


def together(program: Program, model: Model, backend: str) -> Together | None:
    """None for a model of which only some layers are stateless: what one kind allows, the other refuses."""
    kept = _kept(model)
    donors = {share.layer: share.donor for share in model.shares}
    policies = {name: program.policy(name) for name in _names(model, kept, donors)}
    if len({isinstance(policy.storage, Stateless) for policy in policies.values()}) > 1:
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


def as_written(text: str, name: str, backend: str) -> Together:
    """One that was made small before."""
    program = check_text(text, "together.kv").program
    assert program is not None
    model = next(one for one in program.models if one.name == name)
    layers = tuple(program.policy(model.policy_of(layer)) for layer in range(model.layers))
    donors = {share.layer: share.donor for share in model.shares}
    own = tuple(donors.get(layer, layer) for layer in range(model.layers))
    caches = getattr(load_text(text, "together"), f"{class_name(name)}Caches")
    return Together(name, _lead(layers), layers, own, "as written", text, caches, backend)


def _kept(model: Model) -> list[int]:
    """Two layers of each policy that own their keys, and two that do not with their donors."""
    sharing = {share.layer: share.donor for share in model.shares}
    counts: dict[str, int] = {}
    kept: set[int] = set()
    first = 0
    for entry in model.repeat * KEPT:
        for layer in range(first, min(first + entry.count, model.layers)):
            if counts.get(entry.policy, 0) == KEPT:
                break
            if layer not in sharing:
                counts[entry.policy] = counts.get(entry.policy, 0) + 1
                kept.add(layer)
        first += entry.count
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
    """A ring if there is one, of those with the largest bypass the one that sees most."""
    rings = [policy for policy in layers if isinstance(policy.storage, Ring)]
    lead = max(
        rings or layers,
        key=lambda one: (one.trim.bypass_tokens, rules.reach(one.retention) or 0),
    )
    sides = (
        all(policy.padding.left for policy in layers),
        all(policy.padding.right for policy in layers),
    )
    return replace(lead, padding=Padding(*sides))
