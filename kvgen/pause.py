"""The garbage collector, out of the way while a file is read or compiled."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Generator[None]:
    """A megabyte of policies is a million values in no circle: the collector would visit them all again and again and
    free none, for as long as the work itself takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
