"""Pictures as text for a terminal: the same cells, a sign for each kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvgen.draw.kinds import Kind
from kvgen.draw.life import Cell
from kvgen.draw.picture import Picture
from kvgen.draw.shapes import wrapped
from kvgen.draw.units import bytes_text
from kvgen.ir import Model
from kvgen.model import LONG_ROW

_SIGHT = {
    Kind.SINK: "▓▓",
    Kind.WINDOW: "██",
    Kind.CHUNK: "██",
    Kind.FULL: "██",
    Kind.PAST_WINDOW: "··",
    Kind.PAST_CHUNK: "--",
    Kind.FUTURE: "  ",
}
_SLOTS = {
    Kind.SINK: "{}",
    Kind.SPARE: "({})",
    Kind.EMPTY: "·",
    Kind.PADDING: "x",
}
_KEY = "[n] just appended, n seen by the query, (n) held and not seen, · free, x padding"


def text(found: Iterable[Picture], models: Iterable[Model]) -> str:
    blocks = ["\n".join(line.rstrip() for line in _block(picture)) for picture in found]
    blocks += [_model(model) for model in models]
    return "\n\n".join(blocks) + "\n"


def _block(picture: Picture) -> Iterator[str]:
    yield f"policy {picture.declared.name}  {picture.file_name}:{picture.declared.line}"
    yield from (f"  {line}" for line in wrapped(picture.clauses, " · ", 96))
    scale = f"drawn smaller: {picture.scaled}" if picture.scaled.changes else "drawn at true size"
    yield f"  {scale}"
    yield ""
    yield from _panels(picture)
    if picture.life:
        yield ""
        yield from _life(picture)
    yield ""
    yield from _cost(picture)
    yield ""
    signs = {
        **{kind: _SIGHT[kind] for kind in _SIGHT},
        Kind.SPARE: "()",
        Kind.PADDING: "x ",
        Kind.EMPTY: "· ",
    }
    for entry in picture.legend:
        yield f"  {signs.get(entry.kind, '| ')}  {entry.meaning:<28}{entry.clause}"


def _panels(picture: Picture) -> Iterator[str]:
    width = 2 * len(picture.sight)
    holds = "what the cache holds, slot →" if picture.storage else ""
    yield f"      {'what each query sees, key →':<{width}}    {holds}"
    for query, row in enumerate(picture.sight):
        sight = "".join(_SIGHT[kind] for kind in row)
        held = _cells(picture.storage[query]) if query < len(picture.storage) else ""
        if picture.storage and query == len(picture.storage):
            held = "full: one more token is an error"
        yield f"  {query:>2}  {sight:<{width}}    {held}"


def _cells(cells: Sequence[Cell]) -> str:
    return "".join(f"{_cell(cell):^4}" for cell in cells)


def _cell(cell: Cell) -> str:
    if cell.position is None:
        return _SLOTS[cell.kind]
    form = "[{}]" if cell.fresh else _SLOTS.get(cell.kind, "{}")
    return form.format(cell.position)


def _life(picture: Picture) -> Iterator[str]:
    yield f"  a batch of two rows, call by call: {_KEY}"
    for step in picture.life:
        yield f"    {step.call}: {step.remark}"
        for name, row in zip("AB", step.rows, strict=True):
            beside = f"  beside the ring: {_cells(row.beside)}" if row.beside else ""
            yield f"      {name} |{_cells(row.slots)}|{beside}"


def _cost(picture: Picture) -> Iterator[str]:
    found = picture.cost
    yield f"  a token: {bytes_text(found.token)} (keys {bytes_text(found.keys)}, values {bytes_text(found.values)})"
    if picture.stored:
        of = f"of {bytes_text(found.whole)} for all its tokens"
        yield f"  a row of {LONG_ROW:,} tokens: {bytes_text(found.long_row)} {of}"


def _model(model: Model) -> str:
    names = [
        f"{entry.policy} * {entry.count}" if entry.count > 1 else entry.policy
        for entry in model.repeat
    ]
    shared = f", {len(model.shares)} of them share" if model.shares else ""
    return f"model {model.name}: {model.layers} layers{shared}, {', '.join(names)} in turn"
