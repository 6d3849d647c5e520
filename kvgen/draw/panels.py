"""The panels of a policy's picture: what each query sees, what the cache holds, a row's life, bytes, the legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from kvgen.draw.kinds import Kind, seen_as
from kvgen.draw.life import Cell
from kvgen.draw.picture import Picture
from kvgen.draw.shapes import frame, line, num, rect, text
from kvgen.draw.style import fill, fill_of, text_on, tint_of
from kvgen.draw.units import bytes_text, times_less
from kvgen.ir import Ring
from kvgen.model import LONG_ROW

CELL = 16
THIN = 0.45  # how much of its colour a token has that is not the newest
SEEN = (Kind.SINK, Kind.WINDOW, Kind.CHUNK, Kind.FULL)


def marked(picture: Picture) -> int:
    """The query that both upper panels frame: late enough for a ring to have wrapped."""
    return len(picture.sight) * 2 // 3


def title(x: float, y: float, words: str, note: str = "", right: float = 0) -> Iterator[str]:
    yield text(x, y, words, 18, font_weight=650)
    if note:
        yield text(right, y, note, 13, "soft end")


# -- what each query sees


def sight(picture: Picture, x: float, y: float) -> Iterator[str]:
    size = len(picture.sight)
    side = size * CELL
    yield from title(x, y - 20, "What each query sees", "key position →", x + side)
    for query, row in enumerate(picture.sight):
        yield from _runs(row, x, y + query * CELL)
    for at in range(1, size):
        yield from _grid(x, y, side, at)
    yield frame(x, y, side, side, stroke="var(--line)", stroke_width=1)
    yield text(x - 8, y + 12, "0", 11, "mono soft end")
    yield text(x - 8, y + side - 4, str(size - 1), 11, "mono soft end")
    yield text(x - 14, y + side / 2, "query position ↓", 13, "soft n",
               transform=f"rotate(-90 {x - 14:g} {y + side / 2:g})")  # fmt: skip
    query = marked(picture)
    seen = sum(kind in SEEN for kind in picture.sight[query])
    yield frame(x - 4, y + query * CELL, side + 8, CELL, rx=2)
    yield text(x + side - 6, y + query * CELL - 6, f"query {query} sees {seen}", 12, "mono end")


def _runs(row: Sequence[Kind], x: float, y: float) -> Iterator[str]:
    """Neighbours of one kind are one rectangle; the future is left blank."""
    for kind, cells in groupby(enumerate(row), key=lambda cell: cell[1]):
        first, *rest = cells
        if kind is not Kind.FUTURE:
            yield rect(x + first[0] * CELL, y, (1 + len(rest)) * CELL, CELL, fill=fill_of(kind))


def _grid(x: float, y: float, side: float, at: int) -> Iterator[str]:
    """Thin lines of paper; every fourth is stronger, to count by."""
    look = {"stroke": "var(--paper)", "stroke_width": 1.2 if at % 4 == 0 else 0.5}
    yield line(x, y + at * CELL, x + side, y + at * CELL, **look)
    yield line(x + at * CELL, y, x + at * CELL, y + side, **look)


# -- what the cache holds


def storage(picture: Picture, x: float, y: float, width: float) -> Iterator[str]:
    rows = picture.storage
    slots = len(rows[0])
    cell = min(24, width / slots)
    right = x + cell * slots
    yield from title(x, y - 20, "What the cache holds", "slot →", max(right, x + 270))
    yield text(x - 8, y + 12, "after 0", 11, "mono soft end")
    if len(rows) > 1:
        end = y + len(rows) * CELL
        yield text(x - 8, end - 4, str(len(rows) - 1), 11, "mono soft end")
    if len(rows) < len(picture.sight):
        yield text(x, y + len(rows) * CELL + 20, "full: one more token is an error", 12, "soft")
    mark = min(marked(picture), len(rows) - 1)
    for t, row in enumerate(rows):
        yield from _cells(row, x, y + t * CELL, cell, CELL)
    yield from _ruled(x, y, slots, cell, len(rows), CELL)
    for t, row in enumerate(rows):
        yield from _numbers(row, x, y + t * CELL, cell, CELL, only_fresh=t != mark)
    yield frame(x - 4, y + mark * CELL, right - x + 8, CELL, rx=2)


def nothing_stored(x: float, y: float) -> Iterator[str]:
    yield from title(x, y - 20, "What the cache holds")
    yield text(x, y + 14, "Nothing: the policy is stateless.", 14)
    yield text(x, y + 38, "An append hands its keys and values on to the read,", 13, "soft")
    yield text(x, y + 58, "and a forward is one pass from position 0.", 13, "soft")


def _cells(cells: Sequence[Cell], x: float, y: float, width: float, height: float) -> Iterator[str]:
    """Strong where a token is fresh, thin where it was there before; neighbours that look alike are one rectangle."""
    for (kind, fresh), run in groupby(
        enumerate(cells), key=lambda one: (one[1].kind, one[1].fresh)
    ):
        places = [place for place, _ in run]
        thin = kind in SEEN and not fresh
        yield rect(x + places[0] * width, y, len(places) * width, height,
                   fill=tint_of(kind) if thin else fill_of(kind), fill_opacity=THIN if thin else None)  # fmt: skip


def _ruled(
    x: float, y: float, columns: int, width: float, rows: int, height: float
) -> Iterator[str]:
    """Lines of paper between cells."""
    across = (f"M{num(x)} {num(y + row * height)}h{num(columns * width)}" for row in range(1, rows))
    down = (
        f"M{num(x + column * width)} {num(y)}v{num(rows * height)}" for column in range(1, columns)
    )
    yield f'<path d="{"".join((*across, *down))}" stroke="var(--paper)"/>'


def _numbers(
    cells: Sequence[Cell], x: float, y: float, width: float, height: float, only_fresh: bool = False
) -> Iterator[str]:
    """The positions of tokens."""
    size = min(9.5, width * 0.62)
    for place, cell in enumerate(cells):
        if cell.position is not None and (cell.fresh or not only_fresh):
            look = text_on(cell.kind) if cell.fresh or cell.kind not in SEEN else ""
            yield text(x + (place + 0.5) * width, y + height / 2 + size * 0.36, str(cell.position), size,
                       f"mono n {look}".strip())  # fmt: skip


def _strip(cells: Sequence[Cell], x: float, y: float, width: float, height: float) -> Iterator[str]:
    yield from _cells(cells, x, y, width, height)
    yield from _ruled(x, y, len(cells), width, 1, height)
    yield from _numbers(cells, x, y, width, height)


# -- a row's life

STEP = 36
LABEL = 292
NARROW = 90  # room for a strip's heading


def life(picture: Picture, x: float, y: float, width: float) -> Iterator[str]:
    steps = picture.life
    slots = len(steps[0].rows[0].slots)
    beside = max(len(row.beside) for step in steps for row in step.rows)
    gap, between = (10 if beside else 0), 34
    cell = min(20, ((width - LABEL - between) / 2 - gap) / (slots + beside))
    strip = cell * (slots + beside) + gap
    starts = (x + LABEL, x + LABEL + max(strip, NARROW) + between)
    yield from title(x, y - 34, "A batch of two rows, call by call")
    for name, at in zip("AB", starts, strict=True):
        yield text(at, y - 10, f"row {name}: slots", 12, "soft")
        if beside:
            yield text(at + cell * slots + gap, y - 10, "beside the ring", 12, "soft")
    for number, step in enumerate(steps):
        top = y + number * STEP
        yield text(x, top + 12, step.call, 12.5, "mono")
        yield text(x, top + 27, step.remark, 11.5, "soft")
        for row, at in zip(step.rows, starts, strict=True):
            yield from _strip(row.slots, at, top + 3, cell, 20)
            yield from _waiting(row.beside, at + slots * cell + gap, top + 3, cell)


def _waiting(cells: Sequence[Cell], x: float, y: float, cell: float) -> Iterator[str]:
    if cells:
        yield from _strip(cells, x, y, cell, 20)
        yield frame(
            x - 2, y - 2, len(cells) * cell + 4, 24, stroke_width=1, stroke_dasharray="3 2", rx=2
        )


# -- bytes

BAR = 170


def cost(picture: Picture, x: float, y: float) -> Iterator[str]:
    found, heads = picture.cost, picture.declared.heads
    f32 = found.keys_f32 + found.values_f32
    pairs = "1 kv head" if heads.kv == 1 else f"{heads.kv} kv heads"
    yield from title(x, y - 20, "What a token costs")
    yield text(
        x, y, f"bytes a token: {pairs}, dim {heads.key_dim} + {heads.value_dim}", 12.5, "soft"
    )
    word = picture.declared.dtype.value
    yield from _bar(
        x,
        y + 14,
        "f32",
        f32,
        ((fill("keys"), found.keys_f32), (fill("values"), found.values_f32)),
        f32,
    )
    yield from _bar(
        x,
        y + 46,
        word,
        found.token,
        ((fill("keys"), found.keys), (fill("values"), found.values)),
        f32,
    )
    yield rect(x + 46, y + 78, 12, 12, fill=fill("keys"), rx=2)
    yield text(x + 63, y + 88, "keys", 11.5, "soft")
    yield rect(x + 106, y + 78, 12, 12, fill=fill("values"), rx=2)
    yield text(x + 123, y + 88, "values", 11.5, "soft")
    if picture.stored:
        yield from _row_cost(picture, x, y + 122)


def _row_cost(picture: Picture, x: float, y: float) -> Iterator[str]:
    found = picture.cost
    main = fill_of(seen_as(picture.declared))
    yield text(x, y, f"bytes a row of {LONG_ROW:,} tokens", 12.5, "soft")
    yield from _bar(
        x, y + 14, "all", found.whole, ((fill_of(Kind.PAST_WINDOW), found.whole),), found.whole
    )
    yield from _bar(x, y + 46, "this", found.long_row, ((main, found.long_row),), found.whole)
    yield text(x, y + 92, _row_words(picture), 11.5, "soft")


def _row_words(picture: Picture) -> str:
    found = picture.cost
    if found.slots is None:
        return "it grows with the row"
    slots = "one slot" if found.slots == 1 else f"{found.slots:,} slots"
    if not isinstance(picture.declared.storage, Ring):
        return f"{slots}, and no more tokens than that"
    less = (
        f"{times_less(found.whole, found.long_row)} less: " if found.whole > found.long_row else ""
    )
    return f"{less}{slots} for any length"


def _bar(
    x: float, y: float, name: str, total: int, parts: Iterable[tuple[str, int]], longest: int
) -> Iterator[str]:
    """`parts`: (fill, bytes) of each piece."""
    yield text(x + 38, y + 16, name, 12.5, "mono end")
    at = x + 46
    for look, part in parts:
        width = max(1.5, BAR * part / longest)
        yield rect(at, y, width, 24, fill=look)
        at += width
    yield text(at + 6, y + 16, bytes_text(total), 12, "mono")


# -- the legend

ENTRY = 44


def legend(picture: Picture, x: float, y: float) -> Iterator[str]:
    yield from title(x, y, "Which clause does it")
    for number, entry in enumerate(picture.legend):
        top = y + 16 + number * ENTRY
        if entry.kind is Kind.WAITING:
            yield rect(x + 1, top + 1, 20, 20, fill="var(--ghost)")
            yield frame(x + 1, top + 1, 20, 20, stroke_width=1, stroke_dasharray="3 2", rx=2)
        else:
            yield rect(x, top, 22, 22, fill=fill_of(entry.kind), rx=3)
        yield text(x + 32, top + 10, entry.meaning, 13.5)
        yield text(x + 32, top + 26, entry.clause, 11.5, "mono soft")
