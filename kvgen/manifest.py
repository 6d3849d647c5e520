"""`MANIFEST.json` of an output folder: which packages kvgen wrote there, and from what.

Only what is named here can become an orphan; a package that kvgen did not write is not in it, so it is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvgen.errors import FileProblem

NAME = "MANIFEST.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One package. `files` gives the body hash of each; `kvgen` is the version that last changed one of them."""

    source_name: str
    source: str
    codegen: int
    kvgen: str
    backends: tuple[str, ...]
    files: Mapping[str, str] = field(hash=False)
    tuned: str = ""  # hash of what was measured of it and used


Manifest = Mapping[str, Entry]  # by package


def dump(manifest: Manifest) -> str:
    packages = {
        name: {
            "source": entry.source_name,
            "source_hash": entry.source,
            "codegen": entry.codegen,
            "kvgen": entry.kvgen,
            "backends": list(entry.backends),
            **({"tuned": entry.tuned} if entry.tuned else {}),
            "files": dict(sorted(entry.files.items())),
        }
        for name, entry in sorted(manifest.items())
    }
    return json.dumps({"packages": packages}, indent=2) + "\n"


def load(text: str, path: Path) -> Manifest:
    """What is recorded in the file at `path`; FileProblem where that is not what kvgen writes."""
    try:
        packages: dict[str, dict[str, Any]] = json.loads(text)["packages"]
        return {name: _entry(name, value) for name, value in packages.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        where = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else path
        why = f" ({error})" if isinstance(error, ValueError) else ""
        raise FileProblem(
            f"{where}: the manifest is not as kvgen wrote it{why}; restore it from version control, or delete it"
            " and compile again"
        ) from error


def _entry(package: str, value: dict[str, Any]) -> Entry:
    files = {str(name): str(body) for name, body in value["files"].items()}
    for name in (package, *files):
        if "/" in name or "\\" in name or name in ("", ".", ".."):
            raise ValueError(f"{name!r} is no plain file name")
    return Entry(
        source_name=str(value["source"]),
        source=str(value["source_hash"]),
        codegen=int(value["codegen"]),
        kvgen=str(value["kvgen"]),
        backends=tuple(str(name) for name in value["backends"]),
        files=files,
        tuned=str(value.get("tuned", "")),
    )
