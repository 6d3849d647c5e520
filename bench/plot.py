"""A line plot as SVG text, both axes logarithmic: no library, no script, dark mode."""

from __future__ import annotations

import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 480, 70, 250, 50, 60
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#F0E442",
    "#777777",
)  # Okabe and Ito's
DASHES = ("", ' stroke-dasharray="7 4"', ' stroke-dasharray="2 4"')

STYLE = """<style>
text { font: 13px sans-serif; fill: #222; } line, path { stroke-width: 1; } .grid { stroke: #ccc; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } .grid { stroke: #444; } svg { background: #111; } }
</style>"""


def lines_svg(
    series: dict[str, list[tuple[float, float]]], title: str, across: str, up: str
) -> str:
    """A line for each series of (x, y), all above 0. Of a name `whose, what` the first part chooses the dashes, the last the colour.

    What is ours is solid in every plot.
    """
    points = [point for line in series.values() for point in line]
    x_axis = Axis(min(x for x, _ in points), max(x for x, _ in points), LEFT, WIDTH - RIGHT)
    y_axis = Axis(min(y for _, y in points), max(y for _, y in points), HEIGHT - BOTTOM, TOP)
    parts = [f'<text x="{LEFT}" y="28" font-weight="bold">{escape(title)}</text>']
    parts += [
        grid_line(x_axis.at(x), TOP, x_axis.at(x), HEIGHT - BOTTOM)
        for x in sorted({x for x, _ in points})
    ]
    parts += [
        label(x_axis.at(x), HEIGHT - BOTTOM + 20, f"{x:g}", "middle")
        for x in sorted({x for x, _ in points})
    ]
    for y in y_axis.ticks():
        parts += [
            grid_line(LEFT, y_axis.at(y), WIDTH - RIGHT, y_axis.at(y)),
            label(LEFT - 8, y_axis.at(y) + 4, f"{y:g}", "end"),
        ]
    parts += [
        label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 15, across, "middle"),
        label(LEFT, TOP - 6, up, "start"),
    ]
    ordered = sorted(series.items(), key=lambda item: -item[1][-1][1])
    whose = list(dict.fromkeys(["kvgen", *(name.split(", ")[0] for name in series)]))
    what = list(dict.fromkeys(name.split(", ")[-1] for name in series))
    for index, (name, line) in enumerate(ordered):
        colour = COLOURS[what.index(name.split(", ")[-1]) % len(COLOURS)]
        dashes = DASHES[whose.index(name.split(", ")[0]) % len(DASHES)]
        parts += drawn(name, line, index, x_axis, y_axis, f'stroke="{colour}"{dashes}')
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n{STYLE}\n{body}\n</svg>\n'


class Axis:
    """From numbers to places, by their logarithms."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = math.log10(low), math.log10(high), start, end

    def at(self, number: float) -> float:
        share = (math.log10(number) - self.low) / ((self.high - self.low) or 1)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Powers of ten, and twice and five times those where there would be fewer than three."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        for steps in ((1,), (1, 2, 5)):
            ticks = [step * 10.0**n for n in powers for step in steps]
            ticks = [tick for tick in ticks if self.low <= math.log10(tick) <= self.high]
            if len(ticks) >= 3:
                break
        return ticks


def drawn(
    name: str, line: list[tuple[float, float]], index: int, x_axis: Axis, y_axis: Axis, stroke: str
) -> list[str]:
    path = " ".join(f"{x_axis.at(x)},{y_axis.at(y)}" for x, y in line)
    y = TOP + 22 * index
    return [
        f'<polyline points="{path}" fill="none" {stroke} stroke-width="2"/>',
        f'<line x1="{WIDTH - RIGHT + 15}" y1="{y}" x2="{WIDTH - RIGHT + 45}" y2="{y}" {stroke} stroke-width="2"/>',
        label(WIDTH - RIGHT + 52, y + 4, name, "start"),
    ]


def grid_line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
