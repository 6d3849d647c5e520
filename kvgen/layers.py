"""Models: which policy each layer has, and which layers read another's keys and values.

A model may say `layers 9223372036854775807` or `Local * 4k`: layers are looked up, never laid out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from kvgen.clauses import layers as layers_clause
from kvgen.clauses import repeat as repeat_clause
from kvgen.clauses import share as share_clause
from kvgen.clauses.layers import Layers
from kvgen.clauses.repeat import Repeat
from kvgen.clauses.share import Share
from kvgen.diagnostics import Label, Problems
from kvgen.inherit import Names, twice
from kvgen.ir import CachePolicy
from kvgen.syntax import Clause, Declaration, Word


@dataclass(frozen=True, slots=True)
class Written:
    """A model's clauses, judged alone. None: refused or missing."""

    layers: Layers | None
    repeat: Repeat | None
    shares: tuple[tuple[Clause, Share], ...]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Looks up a layer's policy in the time of a bisection."""

    ends: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, repeat: Repeat) -> _Pattern:
        ends = tuple(accumulate(count for _, count in repeat.entries))
        return cls(ends, tuple(word.text for word, _ in repeat.entries))

    def policy_of(self, layer: int) -> str:
        return self.names[bisect_right(self.ends, layer % self.ends[-1])]


def judge(
    model: Declaration,
    names: Names,
    policies: Mapping[str, CachePolicy],
    problems: Problems,
) -> Written:
    """Report all that is wrong with a model. `policies`: those that could be lowered."""
    written = read(model, problems)
    if written.repeat is None:
        return written
    _check_policies(written.repeat, names, policies, problems)
    if written.layers is not None:
        _check_shares(written, _Pattern.of(written.repeat), policies, problems)
    return written


def read(model: Declaration, problems: Problems) -> Written:
    """Each clause alone."""
    first: dict[str, Clause] = {}
    shares: list[tuple[Clause, Share]] = []
    layers, repeat = None, None
    for clause in model.clauses:
        known = first.setdefault(clause.keyword, clause)
        if clause.broken:
            continue
        if clause.keyword == "share":
            share = share_clause.KIND.read(clause, problems)
            shares += [] if share is None else [(clause, share)]
            continue
        if known is not clause and not known.broken:
            twice(model, known, clause, problems)
        if clause.keyword == "layers":
            layers = layers_clause.KIND.read(clause, problems)
        else:
            repeat = repeat_clause.KIND.read(clause, problems)
    _check_required(model, first, problems)
    return Written(layers, repeat, tuple(shares))


def _check_required(model: Declaration, first: Mapping[str, Clause], problems: Problems) -> None:
    if "from" in first:  # the head could not be read: what is missing may have been in it
        return
    for code, keyword, help in (
        ("KV401", "layers", "add `layers N`, how many there are"),
        ("KV402", "repeat", "add `repeat A`, or `repeat A * 5, B`, of policies of this file"),
    ):
        if keyword not in first:
            problems.add(
                code,
                f"`{model.name.text}` has no {keyword}",
                Label(model.name.span, f"a model needs `{keyword}`"),
                help,
            )


def _check_policies(
    repeat: Repeat, names: Names, policies: Mapping[str, CachePolicy], problems: Problems
) -> None:
    """All known, and alike in what one forward needs alike."""
    base: tuple[Word, CachePolicy] | None = None
    seen: set[str] = set()
    for word, _ in repeat.entries:
        if word.text in seen:
            continue
        seen.add(word.text)
        if word.text not in names.policies:
            names.unknown("KV403", word, problems)
        elif word.text in policies:
            policy = policies[word.text]
            base = base or (word, policy)
            _check_alike(*base, word, policy, problems)


def _check_alike(
    first: Word, base: CachePolicy, word: Word, policy: CachePolicy, problems: Problems
) -> None:
    heads, dtype = f"{policy.heads.query} query heads", policy.dtype.value
    base_heads, base_dtype = f"{base.heads.query} query heads", base.dtype.value
    if policy.heads.query != base.heads.query:
        problems.add(
            "KV409",
            "the policies of a model differ in query heads",
            Label(word.span, heads),
            "one model has one number of query heads: give both policies the same",
            Label(first.span, base_heads),
        )
    if policy.dtype is not base.dtype:
        problems.add(
            "KV410",
            "the policies of a model differ in dtype",
            Label(word.span, f"stores {dtype}"),
            "one model computes in one dtype: give both policies the same",
            Label(first.span, f"stores {base_dtype}"),
        )


def _check_shares(
    written: Written, pattern: _Pattern, policies: Mapping[str, CachePolicy], problems: Problems
) -> None:
    sharing: dict[int, Clause] = {}
    for clause, share in written.shares:
        sharing.setdefault(share.layer, clause)
    for clause, share in written.shares:
        if _check_share(clause, share, written.layers, sharing, problems):
            _check_kinship(clause, share, pattern, policies, problems)


def _check_share(
    clause: Clause,
    share: Share,
    layers: Layers | None,
    sharing: Mapping[int, Clause],
    problems: Problems,
) -> bool:
    """Whether both layers exist and the donor can be one."""
    assert layers is not None
    first = sharing[share.layer]
    if first is not clause:
        problems.add(
            "KV411",
            f"layer {share.layer} shares twice",
            Label(clause.span, "the second one"),
            "a layer reads the keys and values of one other layer: leave one of the two out",
            Label(first.span, "the first one"),
        )
    numbers = zip(clause.numbers(), (share.layer, share.donor), strict=True)
    outside = [word for word, layer in numbers if layer >= layers.count]
    for word in outside:
        problems.add(
            "KV404",
            f"there is no layer {word.text}",
            Label(word.span, f"the model has {layers.count}, and they count from 0"),
            f"name a layer from 0 to {layers.count - 1}",
        )
    return not outside and _check_donor(clause, share, sharing, problems)


def _check_donor(
    clause: Clause, share: Share, sharing: Mapping[int, Clause], problems: Problems
) -> bool:
    """Whether the donor comes before the layer and owns what it gives."""
    donor_word = clause.numbers()[1]
    if share.donor == share.layer:
        problems.add(
            "KV405",
            f"layer {share.layer} shares from itself",
            Label(clause.span, "it reads its own keys and values anyway"),
            "leave the clause out, or name an earlier layer",
        )
    elif share.donor > share.layer:
        problems.add(
            "KV406",
            f"layer {share.layer} shares from the later layer {share.donor}",
            Label(donor_word.span, "computed later: it has no keys and values yet"),
            f"name a layer below {share.layer}",
        )
    elif share.donor in sharing:
        problems.add(
            "KV407",
            f"layer {share.donor} has no keys and values of its own",
            Label(donor_word.span, "this layer reads another's itself"),
            f"name the layer that owns what layer {share.donor} reads",
            Label(sharing[share.donor].span, "as this says"),
        )
    else:
        return True
    return False


def _check_kinship(
    clause: Clause,
    share: Share,
    pattern: _Pattern,
    policies: Mapping[str, CachePolicy],
    problems: Problems,
) -> None:
    """A reader must see its donor's tokens as the donor does."""
    reader, donor = pattern.policy_of(share.layer), pattern.policy_of(share.donor)
    if reader == donor or reader not in policies or donor not in policies:
        return
    differing = _differences(policies[reader], policies[donor])
    if differing:
        problems.add(
            "KV408",
            f"layer {share.layer} (`{reader}`) and layer {share.donor} (`{donor}`) differ in {differing}",
            Label(clause.span, "a layer reads its donor's keys and values as its own"),
            f"name an earlier layer of `{reader}`",
        )


def _differences(a: CachePolicy, b: CachePolicy) -> str:
    pairs = {
        "heads": ((a.heads.query, a.heads.kv), (b.heads.query, b.heads.kv)),
        "dims": ((a.heads.key_dim, a.heads.value_dim), (b.heads.key_dim, b.heads.value_dim)),
        "dtype": (a.dtype, b.dtype),
        "window": (a.retention.window_tokens, b.retention.window_tokens),
        "sinks": (a.retention.sink_tokens, b.retention.sink_tokens),
        "chunk": (a.retention.chunk_tokens, b.retention.chunk_tokens),
    }
    return ", ".join(name for name, (one, other) in pairs.items() if one != other)
