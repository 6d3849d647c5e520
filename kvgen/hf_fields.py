"""The fields of a config.json, read with a word to say where one is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


class ConfigError(ValueError):
    """A config.json that no policy is written for: what was found, why it matters, what to do."""


def as_object(value: object) -> Mapping[str, Any] | None:
    """A JSON object; None if it is something else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def as_list(value: object) -> list[Any] | None:
    """A JSON list; None if it is something else."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def shown(value: object) -> str:
    """A value of a file in a message, cut where it is long."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True, slots=True)
class Fields:
    """The text model's fields over its family's defaults. Reading names the field that is wrong."""

    model_type: str
    values: Mapping[str, object]

    def get(self, name: str) -> object:
        return self.values.get(name)

    def count(self, name: str) -> int:
        """A whole number of 1 or more."""
        found = self.optional_count(name)
        if found is None:
            raise ConfigError(
                f"{name} is missing, and no default of model_type {self.model_type!r} is known: "
                f"the policy needs it. Add {name} to a copy of the file if queries of this model see "
                "all positions before them without more ado, else write the policy by hand."
            )
        return found

    def optional_count(self, name: str) -> int | None:
        found = self.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise ConfigError(
                f"{name} is {shown(found)}: expected a whole number of 1 or more. Correct the "
                "config.json."
            )
        return found

    def number(self, name: str) -> float | None:
        found = self.get(name)
        if found is None:
            return None
        if (
            isinstance(found, bool)
            or not isinstance(found, (int, float))
            or not 0 < found < math.inf
        ):
            raise ConfigError(
                f"{name} is {shown(found)}: expected a number above 0. Correct the config.json."
            )
        return float(found)

    def layers(self, name: str, layers: int) -> list[Any] | None:
        """A list of one entry a layer; None when the file has none."""
        found = self.get(name)
        if not found:
            return None
        entries = as_list(found)
        if entries is None or len(entries) != layers:
            raise ConfigError(
                f"{name} must be a list of {layers} entries, one a layer, got {shown(found)}."
            )
        return entries
