"""A policy as a picture, before any format: cells, a row's life, bytes, and the clause behind each colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvgen import model
from kvgen.draw.kinds import Kind, of_pair, of_token
from kvgen.draw.life import LINEAR_SLOTS, Cell, Step, life
from kvgen.ir import CachePolicy, Contiguous, DType, Fixed, Origin, Program, Ring, Stateless
from kvgen.miniature import Scaled, scaled

LEAST = 2  # sinks and slack of which fewer would not be seen


@dataclass(frozen=True, slots=True)
class Entry:
    """One colour: what it says, and the clause that is behind it, with its line."""

    kind: Kind
    meaning: str
    clause: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes at true size. `long_row`: of LONG_ROW tokens, `whole`: were all of them kept."""

    keys: int
    values: int
    keys_f32: int
    values_f32: int
    long_row: int
    whole: int
    slots: int | None

    @property
    def token(self) -> int:
        return self.keys + self.values


@dataclass(frozen=True, slots=True)
class Picture:
    """`sight[query][key]`; `storage[t]`: the slots once position t was appended, as its query sees them;
    as many as there are until fixed storage is full."""

    declared: CachePolicy
    scaled: Scaled
    file_name: str
    sight: tuple[tuple[Kind, ...], ...]
    storage: tuple[tuple[Cell, ...], ...]
    life: tuple[Step, ...]
    cost: Cost
    legend: tuple[Entry, ...]

    @property
    def stored(self) -> bool:
        return not isinstance(self.declared.storage, Stateless)

    @property
    def clauses(self) -> tuple[str, ...]:
        return tuple(origin.text for origin in self.declared.origins)


def pictures(program: Program, positions: int, reach: int) -> tuple[Picture, ...]:
    """One of each policy: `positions` of a row, a window of at most `reach`."""
    return tuple(picture(program, policy, positions, reach) for policy in program.policies)


def picture(program: Program, policy: CachePolicy, positions: int, reach: int) -> Picture:
    small = scaled(policy, reach, LEAST)
    stored = not isinstance(policy.storage, Stateless)
    shown = small.policy
    sight = tuple(
        tuple(of_pair(shown, query, key) for key in range(positions)) for query in range(positions)
    )
    storage = tuple(_storage(shown, positions)) if stored else ()
    steps = life(_roomy(shown)) if stored and not _cramped(shown) else ()
    return Picture(
        declared=policy,
        scaled=small,
        file_name=f"{program.stem}.kv",
        sight=sight,
        storage=storage,
        life=steps,
        cost=_cost(policy),
        legend=tuple(_legend(policy, program.stem, _kinds(sight, storage, steps))),
    )


def _roomy(policy: CachePolicy) -> CachePolicy:
    """For the life of a row, which is the same in any storage without a ring."""
    return policy if isinstance(policy.storage, Ring) else replace(policy, storage=Contiguous())


def _cramped(policy: CachePolicy) -> bool:
    """Fixed storage with too few slots for a dozen calls."""
    slots = policy.storage.slots if isinstance(policy.storage, Fixed) else None
    return slots is not None and slots < LINEAR_SLOTS


def _storage(policy: CachePolicy, positions: int) -> Iterator[tuple[Cell, ...]]:
    """Fixed storage ends where it is full."""
    slots = model.capacity(policy) or positions
    if isinstance(policy.storage, Fixed):
        slots = positions = min(slots, positions)
    for query in range(positions):
        held = (model.held_in_slot(policy, slot, query + 1) for slot in range(slots))
        yield tuple(
            Cell(Kind.EMPTY) if p is None else Cell(of_token(policy, query, p), p, p == query)
            for p in held
        )


def _cost(policy: CachePolicy) -> Cost:
    def token(dtype: DType, keys: bool, values: bool) -> int:
        heads = replace(
            policy.heads,
            key_dim=policy.heads.key_dim * keys,
            value_dim=policy.heads.value_dim * values,
        )
        return model.bytes_per_token(heads, dtype)

    return Cost(
        keys=token(policy.dtype, True, False),
        values=token(policy.dtype, False, True),
        keys_f32=token(DType.F32, True, False),
        values_f32=token(DType.F32, False, True),
        long_row=model.row_bytes(policy, model.LONG_ROW),
        whole=token(policy.dtype, True, True) * model.LONG_ROW,
        slots=model.capacity(policy),
    )


# -- the legend


def _kinds(
    sight: Iterable[tuple[Kind, ...]],
    storage: Iterable[tuple[Cell, ...]],
    steps: Sequence[Step],
) -> set[Kind]:
    found = {kind for row in sight for kind in row}
    found |= {cell.kind for row in storage for cell in row}
    found |= {
        cell.kind for step in steps for row in step.rows for cell in (*row.slots, *row.beside)
    }
    if any(row.beside for step in steps for row in step.rows):
        found.add(Kind.WAITING)
    return found


def _legend(policy: CachePolicy, stem: str, found: set[Kind]) -> Iterator[Entry]:
    origins = {origin.clause: origin for origin in policy.origins}
    for kind, meaning, clause, default in _MEANINGS:
        if kind in found and not (kind is Kind.SPARE and not isinstance(policy.storage, Ring)):
            yield Entry(kind, meaning, _clause(origins.get(clause), stem, default))
    if Kind.SPARE in found and not isinstance(policy.storage, Ring):
        yield Entry(
            Kind.SPARE,
            "held, not seen",
            _clause(origins.get("storage"), stem, "storage contiguous, the default"),
        )


def _clause(origin: Origin | None, stem: str, default: str) -> str:
    return default if origin is None else f"{origin.text}  {stem}.kv:{origin.line}"


_MEANINGS = (
    (Kind.SINK, "seen for ever", "sinks", ""),
    (Kind.WINDOW, "seen while recent", "window", ""),
    (Kind.CHUNK, "seen within its run", "chunk", ""),
    (Kind.FULL, "seen by all that follow", "window", "window full, the default"),
    (Kind.PAST_WINDOW, "out of the window", "window", ""),
    (Kind.PAST_CHUNK, "of an earlier run", "chunk", ""),
    (Kind.SPARE, "held for rollback, not seen", "storage", "storage ring, the default"),
    (Kind.WAITING, "waits beside the ring", "storage", "storage ring, the default"),
    (Kind.PADDING, "padding, no token", "padding", ""),
    (Kind.EMPTY, "free slot", "storage", "storage contiguous, the default"),
)
