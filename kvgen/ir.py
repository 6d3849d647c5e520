"""What the policies of a file mean: plain frozen values, checked, in tokens and slots.

The language has many ways to say a thing; here it is said once. Nothing below knows how a policy was spelt, except
`Origin`, which lets an emitted line name the clause that asked for it. Words are those of docs/contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DType(Enum):
    """The type of stored keys and values, by its word in the language."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"

    @property
    def torch_name(self) -> str:
        return {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[self.value]

    @property
    def bytes(self) -> int:
        return 4 if self is DType.F32 else 2


@dataclass(frozen=True, slots=True)
class Heads:
    """`query` heads read `kv` pairs of keys and values; head h reads pair h // group."""

    query: int
    kv: int
    key_dim: int
    value_dim: int

    @property
    def group(self) -> int:
        return self.query // self.kv


@dataclass(frozen=True, slots=True)
class Scores:
    """What happens to q . k before the softmax. `scale` None: 1 / sqrt(key_dim). `softcap` None: no cap."""

    scale: float | None
    softcap: float | None
    sink_logits: bool


@dataclass(frozen=True, slots=True)
class Retention:
    """The predicate of what a query sees: see `model.visible`. None: no such limit."""

    window_tokens: int | None
    sink_tokens: int
    chunk_tokens: int | None


@dataclass(frozen=True, slots=True)
class Contiguous:
    """Grows with the row."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """`slots` a row, allocated once. None: the constructor's `capacity` says how many."""

    slots: int | None


@dataclass(frozen=True, slots=True)
class Ring:
    """As many slots as a query can see, `slack_slots` more for rollback, and the sinks' own; overwritten in place."""

    slack_slots: int


@dataclass(frozen=True, slots=True)
class Stateless:
    """Nothing is stored: training and scoring."""


Storage = Contiguous | Fixed | Ring | Stateless


@dataclass(frozen=True, slots=True)
class Padding:
    """The sides on which a batch may be padded."""

    left: bool
    right: bool


@dataclass(frozen=True, slots=True)
class Trim:
    """`guarded`: tokens may be taken back where that is exact. `bypass_tokens`: unasked, after a verify window; 0: never."""

    guarded: bool
    bypass_tokens: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a clause was written: its formatted text and the line on which `kvgen fmt` prints it."""

    clause: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """One policy with everything decided: no default is open and `from` is resolved."""

    name: str
    line: int
    heads: Heads
    dtype: DType
    scores: Scores
    retention: Retention
    storage: Storage
    padding: Padding
    trim: Trim
    origins: tuple[Origin, ...]  # the written clauses, inherited ones included, in manual order


@dataclass(frozen=True, slots=True)
class Entry:
    """`count` layers in a row of one policy, inside a model's `repeat`."""

    policy: str
    count: int


@dataclass(frozen=True, slots=True)
class Share:
    """Layer `layer` reads the keys and values of layer `donor`."""

    layer: int
    donor: int


@dataclass(frozen=True, slots=True)
class Model:
    """Layer i uses entry i mod (the sum of counts) of `repeat`, except that sharing layers read their donor's cache."""

    name: str
    line: int
    layers: int
    repeat: tuple[Entry, ...]
    shares: tuple[Share, ...]  # by layer

    @property
    def period(self) -> int:
        """Layers after which the pattern begins again."""
        return sum(entry.count for entry in self.repeat)

    def count(self, policy: str) -> int:
        """How many layers have a policy, without laying the pattern out."""
        whole, rest = divmod(self.layers, self.period)
        found = 0
        for entry in self.repeat:
            if entry.policy == policy:
                found += whole * entry.count + min(rest, entry.count)
            rest = max(0, rest - entry.count)
        return found

    def policy_of(self, layer: int) -> str:
        """The policy's name of one layer, without laying the pattern out."""
        index = layer % self.period
        for entry in self.repeat:
            if index < entry.count:
                return entry.policy
            index -= entry.count
        raise AssertionError("a model's repeat is never empty")


@dataclass(frozen=True, slots=True)
class Program:
    """One .kv file: `stem` names its package, `formatted` is its text as `kvgen fmt` prints it."""

    stem: str
    formatted: str
    policies: tuple[CachePolicy, ...]
    models: tuple[Model, ...]

    def policy(self, name: str) -> CachePolicy:
        return next(policy for policy in self.policies if policy.name == name)
