"""The few shapes that a picture is made of, as lines of SVG. Numbers are written short and always alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape


def num(x: float) -> str:
    """At most two decimals, and none that say nothing."""
    return f"{x:.2f}".rstrip("0").rstrip(".")


def attributes(**named: object) -> str:
    """`stroke_width=1` as ` stroke-width="1"`; None is left out."""
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for name, value in named.items()
        if value is not None
    )


def _text(value: object) -> str:
    return num(value) if isinstance(value, (int, float)) else escape(str(value))


def rect(x: float, y: float, width: float, height: float, **more: object) -> str:
    return f"<rect{attributes(x=x, y=y, width=width, height=height, **more)}/>"


def frame(x: float, y: float, width: float, height: float, **more: object) -> str:
    """An outline."""
    return rect(
        x, y, width, height, fill="none", **{"stroke": "var(--ink)", "stroke_width": 1.5, **more}
    )


def line(x1: float, y1: float, x2: float, y2: float, **more: object) -> str:
    look = {"stroke": "var(--line)", **more}
    return f"<path{attributes(d=f'M{num(x1)} {num(y1)}L{num(x2)} {num(y2)}', **look)}/>"


def text(x: float, y: float, words: str, size: float, kind: str = "", **more: object) -> str:
    """`kind`: classes of the style sheet, such as `mono soft`."""
    return f"<text{attributes(x=x, y=y, font_size=size, class_=kind or None, **more)}>{escape(words)}</text>"


def group(lines: Iterable[str], **more: object) -> Iterator[str]:
    yield f"<g{attributes(**more)}>"
    yield from lines
    yield "</g>"


def wrapped(words: Iterable[str], separator: str, characters: int) -> Iterator[str]:
    """Words joined to lines of at most so many characters."""
    line = ""
    for word in words:
        longer = f"{line}{separator}{word}" if line else word
        if line and len(longer) > characters:
            yield line
            longer = word
        line = longer
    if line:
        yield line
