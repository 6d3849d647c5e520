"""Bytes and ratios in words."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count: int) -> str:
    """`519 KiB`: three digits are enough to compare."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {_UNITS[unit]}" if size < 1000 else f"{size:,.0f} {_UNITS[unit]}"


def times_less(more: int, less: int) -> str:
    ratio = more / less
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"
