# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 5ba991695499 codegen 1
"""The masks of one forward."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any


class Masks:
    """Layers whose rows stand at the same positions build each mask once. `builds` counts them.

    A key holds everything that its mask depends on, so one object may serve any number of layers and forwards.
    """

    KEPT = 32

    def __init__(self) -> None:
        self.builds = 0
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, build: Callable[[], Any]) -> Any:
        if key not in self._made:
            if len(self._made) >= self.KEPT:
                self._made.clear()
            self._made[key] = build()
            self.builds += 1
        return self._made[key]
