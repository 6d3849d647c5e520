"""How long a search may go on, and word of how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable

Tell = Callable[[float], None]  # the share of the time that has passed
_PAUSE = 0.1  # seconds between two words


class OutOfTime(Exception):
    """The time that was given is used up."""


class Clock:
    def __init__(self, seconds: float, tell: Tell | None = None) -> None:
        self._start, self._seconds, self._tell = time.monotonic(), seconds, tell
        self._told = 0.0

    def left(self) -> float:
        return self._start + self._seconds - time.monotonic()

    def tick(self) -> None:
        """Raises OutOfTime when it is."""
        if self.left() <= 0:
            raise OutOfTime
        self.tell()

    def tell(self) -> None:
        now = time.monotonic()
        if self._tell is not None and now - self._told >= _PAUSE:
            self._told = now
            self._tell(min(1.0, (now - self._start) / self._seconds))
