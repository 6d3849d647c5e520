"""What `kvgen init` writes: a first policy with a word on every line, or one made from a model's config.json."""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path
from typing import Any

from kvgen import inputs, textfile
from kvgen.errors import FileProblem

DEFAULT_NAME = "Local"

_TEXT = """\
kvgen 1

# `kvgen list clauses` names all clauses, `kvgen explain window` tells more of one.

policy {name} {{
    heads    query 8 kv 4                # of the model's config: query heads, and the key-value heads they share
    dim      128                         # of one head
    dtype    bf16                        # how keys and values are stored: f32, f16 or bf16
    window   512                         # a query sees itself and the 511 positions before it
    storage  ring slack 7                # 519 slots a row: the window, and 7 to take drafted tokens back
    padding  left right                  # the sides a batch may be padded on
    trim     guarded bypass 7            # tokens may be taken back where that is exact
}}
"""


def policy(name: str | None) -> str:
    return _TEXT.format(name=_checked_name(DEFAULT_NAME if name is None else name))


def from_config(path: Path, name: str | None) -> str:
    """Raises FileProblem for a file that is no JSON object, hf_fields.ConfigError for a model it does not know."""
    from kvgen.hf_text import policy_text

    return policy_text(_config(path), None if name is None else _checked_name(name))


def write_new(path: Path, text: str) -> None:
    """A new file: one that is there already may be somebody's work."""
    inputs.checked_name(path)
    if path.exists():
        raise FileProblem(f"{path} exists; name another file with -o, or remove it first")
    textfile.write(path, text)


def _config(path: Path) -> dict[str, Any]:
    path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        remedy = "give a model's config.json, or the folder that holds it"
        raise FileProblem.of(error, remedy) from error
    except (ValueError, RecursionError) as error:
        raise FileProblem(f"{path} is not JSON: {error}; give a model's config.json") from error
    if not isinstance(config, dict):
        raise FileProblem(f"{path} holds no JSON object; give a model's config.json")
    return config  # pyright: ignore[reportUnknownVariableType]


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise FileProblem(
            f"`{name}` cannot name a policy or model: a letter, then letters, digits and"
            " underscores, at most 64, and no Python keyword"
        )
    return name
