"""Prints a value of the pipeline as an indented tree: what `--emit syntax` and `--emit ir` show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum

SHORT = 88  # a value that fits a line stays on one


def show(value: object) -> str:
    return "\n".join(_lines(value)) + "\n"


def _lines(value: object) -> Iterator[str]:
    line = _line(value)
    if len(line) <= SHORT and "\n" not in line:
        yield line
    elif isinstance(value, str):
        yield from (f"| {text}".rstrip() for text in value.splitlines())
    elif isinstance(value, tuple):
        yield from _items(value)  # pyright: ignore[reportUnknownArgumentType]
    elif is_dataclass(value):
        yield type(value).__name__
        for field in fields(value):
            yield from _named(field.name, getattr(value, field.name))
    else:
        yield line


def _named(name: str, value: object) -> Iterator[str]:
    first, *rest = _lines(value)
    if not rest:
        yield f"  {name}: {first}"
        return
    yield f"  {name}:"
    yield from (f"    {line}" for line in (first, *rest))


def _items(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        first, *rest = _lines(value)
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)


def _line(value: object) -> str:
    """`value` on one line, as Python would build it."""
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return _built(value, [field.name for field in fields(value)])
    if isinstance(value, tuple):
        items: tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType]
        names: tuple[str, ...] = getattr(items, "_fields", ())  # a named tuple's
        return _built(items, names) if names else f"({', '.join(map(_line, items))})"
    return repr(value)


def _built(value: object, names: Iterable[str]) -> str:
    named = (f"{name}={_line(getattr(value, name))}" for name in names)
    return f"{type(value).__name__}({', '.join(named)})"
