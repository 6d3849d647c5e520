"""What the classes and modules of an emitted package are called."""

from __future__ import annotations

import re

from kvgen.backends import BACKENDS


def class_name(policy: str) -> str:
    return f"{policy[0].upper()}{policy[1:]}"


def names(policy: str) -> dict[str, str]:
    """The classes of a policy: its cache, its read, and its kernels on each backend."""
    return {
        kind: f"{class_name(policy)}{kind.capitalize()}" for kind in ("cache", "read", *BACKENDS)
    }


def modules(policy: str) -> dict[str, str]:
    """The modules of a policy; their endings keep them apart from each other and from the shared ones."""
    return {kind: f"{policy.lower()}_{kind}" for kind in ("policy", "cache", *BACKENDS)}


def natural(name: object) -> list[tuple[int, str]]:
    """The order in which import sorters put names: p2 before p10."""
    parts = re.split(r"(\d+)", str(name))
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
