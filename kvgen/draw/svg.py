"""Pictures as one SVG: policies below each other, then models. No script, no clock, the same bytes everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from kvgen.draw import layers, panels
from kvgen.draw.picture import Picture
from kvgen.draw.shapes import group, line, num, text, wrapped
from kvgen.draw.style import TYPE, hatches, sheet
from kvgen.ir import Program

WIDTH = 1440
_LEFT, _MIDDLE, _RIGHT = 70, 676, 1150  # the columns
_LINE = 20


def svg(program: Program, found: Sequence[Picture]) -> str:
    """The whole file's picture, to stand alone."""
    blocks = [block(picture) for picture in found]
    blocks += [layers.block(program, model, WIDTH) for model in program.models]
    return document(f"{program.stem}.kv", _describe(found), blocks, standing_alone=True)


def one(picture: Picture, first: bool) -> str:
    """A policy's, to stand in a page; the first brings the hatchings for all."""
    name = f"policy {picture.declared.name}"
    return document(
        name, _describe([picture]), [block(picture)], standing_alone=False, defined=first
    )


def model_picture(program: Program, number: int) -> str:
    model = program.models[number]
    lines = layers.block(program, model, WIDTH)
    return document(f"model {model.name}", f"{model.layers} layers", [lines], False, False)


def document(
    name: str,
    description: str,
    blocks: Sequence[tuple[list[str], float]],
    standing_alone: bool,
    defined: bool = True,
) -> str:
    """`blocks`: lines and height of each."""
    height = sum(tall for _, tall in blocks)
    style = (sheet(":root") if standing_alone else "") + TYPE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {num(height)}" width="{WIDTH}"'
        f' height="{num(height)}" role="img">',
        f"<title>{escape(name)}</title>",
        f"<desc>{escape(description)}</desc>",
        *([f"<style>{style}</style>", "<defs>", *hatches(), "</defs>"] if defined else []),
        '<rect width="100%" height="100%" fill="var(--paper)"/>',
        *_stacked(blocks),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _stacked(blocks: Sequence[tuple[list[str], float]]) -> Iterator[str]:
    top = 0.0
    for lines, height in blocks:
        if top:
            yield line(40, top, WIDTH - 40, top)
        yield from group(lines, transform=f"translate(0 {num(top)})" if top else None)
        top += height


def _describe(found: Iterable[Picture]) -> str:
    return "; ".join(f"{picture.declared.name}: {', '.join(picture.clauses)}" for picture in found)


def block(picture: Picture) -> tuple[list[str], float]:
    """One policy: its lines and how high they are."""
    heading = list(_heading(picture))
    top = 142 + _LINE * (len(heading) - 2)
    lower = top + len(picture.sight) * panels.CELL
    lines = [*heading, *_upper(picture, top)]
    if picture.life:
        lines += panels.life(picture, 40, lower + 92, _RIGHT - 80)
        lower += 92 + len(picture.life) * panels.STEP
    at = top + (250 if picture.stored else 128)
    lines += panels.legend(picture, _RIGHT, at)
    lower = max(lower, at + 24 + len(picture.legend) * panels.ENTRY) + 40
    lines.append(text(40, lower, _footer(picture), 12, "mono soft"))
    return lines, lower + 28


def _heading(picture: Picture) -> Iterator[str]:
    yield text(40, 48, f"policy {picture.declared.name}", 27, font_weight=700)
    clauses = [f"{picture.file_name}:{picture.declared.line}", *picture.clauses]
    for number, words in enumerate(wrapped(clauses, " · ", 160)):
        yield text(40, 74 + number * _LINE, words, 13.5, "mono soft")


def _upper(picture: Picture, top: float) -> Iterator[str]:
    yield from panels.sight(picture, _LEFT, top)
    if picture.storage:
        yield from panels.storage(picture, _MIDDLE, top, _RIGHT - 50 - _MIDDLE)
    else:
        yield from panels.nothing_stored(_MIDDLE - 44, top)
    yield from panels.cost(picture, _RIGHT, top)


def _footer(picture: Picture) -> str:
    size = len(picture.sight)
    scale = f"drawn smaller: {picture.scaled}" if picture.scaled.changes else "drawn at true size"
    return f"{scale} · the first {size} positions of a row · kvgen draw {picture.file_name}"
