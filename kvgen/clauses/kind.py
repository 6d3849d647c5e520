"""What every clause file provides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvgen.diagnostics import Problems
from kvgen.syntax import Clause

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A clause of the language.

    `value`: the class of what it means. `forms`: every way to write it. `read` judges one clause alone: its value, or None once it has reported why there is none.
    """

    keyword: str
    value: type[T]
    forms: tuple[str, ...]
    meaning: str
    default: str
    read: Callable[[Clause, Problems], T | None]
