"""The .kv text of a model that a Hugging Face `config.json` describes: `kvgen init --from`."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Collection, Mapping

from kvgen.hf_config import Described, Layer, read
from kvgen.hf_fields import ConfigError, Fields
from kvgen.hf_kinds import CHUNKED, FULL, SLIDING

POLICY_NAMES = {FULL: "Full", SLIDING: "Sliding", CHUNKED: "Chunked"}
DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
UNKNOWN = [
    "# kvgen has not read that model's code: it takes every query to see all positions before it,",
    "# and scores to be divided by the root of dim. Compare its logits with and without the cache once.",
]
BYPASS = 7  # tokens of a draft that a ring takes back after verifying them in place


def policy_text(config: Mapping[str, object], name: str | None = None) -> str:
    """The .kv text of a parsed config.json: a policy for each kind of layer, and the model.

    `name` is the model's name, by default its `model_type` in CamelCase. ConfigError where the
    file says something that no policy expresses, or that is not understood.
    """
    model = read(config)
    names = _policy_names(model.layers)
    title = _model_name(name, config, names.values())
    scores = _score_clauses(model)
    lines = [
        "kvgen 1",
        "",
        f"# From a config.json of model_type {_printable(str(config.get('model_type')))}.",
    ]
    if not model.known:
        lines += UNKNOWN
    for layer, policy in names.items():
        lines += [
            "",
            f"policy {policy} {{",
            *_policy_clauses(layer, scores[layer], _dtype(model.fields)),
            "}",
        ]
    repeat = _repeat([names[layer] for layer in model.layers])
    lines += [
        "",
        f"model {title} {{",
        f"    layers   {len(model.layers)}",
        f"    repeat   {repeat}",
    ]
    lines += [f"    share    {layer} from {donor}" for layer, donor in model.shares]
    return "\n".join([*lines, "}", ""])


def _policy_names(layers: list[Layer]) -> dict[Layer, str]:
    """A name for each different layer, by kind, numbered where a kind comes in several sizes."""
    names: dict[Layer, str] = {}
    for layer in layers:
        if layer not in names:
            alike = sum(other.kind == layer.kind for other in names)
            names[layer] = POLICY_NAMES[layer.kind] + (str(alike + 1) if alike else "")
    return names


def _model_name(name: str | None, config: Mapping[str, object], taken: Collection[str]) -> str:
    if name is None:
        words = re.split(r"[^A-Za-z0-9]+", str(config.get("model_type")))
        name = "".join(word[:1].upper() + word[1:] for word in words)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{_printable(name)!r} cannot name a model: letters, digits and _, a letter first, at "
            "most 64 characters, no Python keyword. Pass another name."
        )
    if name.lower() in {policy.lower() for policy in taken}:
        raise ConfigError(
            f"{name!r} names a policy of this file too. Pass another name for the model."
        )
    return name


def _score_clauses(model: Described) -> dict[Layer, list[str]]:
    family, fields = model.family, model.fields
    scale = family.scale(fields)
    clauses: dict[Layer, list[str]] = {}
    for layer in model.layers:
        lines: list[str] = []
        if scale is not None and not math.isclose(scale, layer.dim**-0.5, rel_tol=1e-9):
            lines.append(f"    scale    {_number(scale)}")
        if family.softcap and (cap := fields.number(family.softcap)) is not None:
            lines.append(f"    softcap  {_number(cap)}")
        if family.sink_logits:
            lines.append("    sink_logits")
        clauses[layer] = lines
    return clauses


def _policy_clauses(layer: Layer, scores: list[str], dtype: str) -> list[str]:
    lines = [
        f"    heads    query {layer.query} kv {layer.kv}",
        f"    dim      {layer.dim}",
        f"    dtype    {dtype}",
        *scores,
    ]
    if layer.window is None and layer.chunk is None:
        return [
            *lines,
            "    storage  contiguous",
            "    padding  left right",
            "    trim     guarded",
        ]
    limit = f"    window   {layer.window}" if layer.chunk is None else f"    chunk    {layer.chunk}"
    ring = [
        f"    storage  ring slack {BYPASS}",
        "    padding  left right",
        f"    trim     guarded bypass {BYPASS}",
    ]
    return [*lines, limit, *ring]


def _dtype(fields: Fields) -> str:
    stated = fields.get("dtype") or fields.get("torch_dtype")
    return DTYPES.get(str(stated).removeprefix("torch."), "bf16")


def _repeat(names: list[str]) -> str:
    """The shortest run of policies that gives every layer its own when repeated."""
    period = next(
        p
        for p in range(1, len(names) + 1)
        if all(names[i] == names[i % p] for i in range(len(names)))
    )
    entries: list[tuple[str, int]] = []
    for name in names[:period]:
        if entries and entries[-1][0] == name:
            entries[-1] = name, entries[-1][1] + 1
        else:
            entries.append((name, 1))
    return ", ".join(name if count == 1 else f"{name} * {count}" for name, count in entries)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and value < 2**53 else repr(value)


def _printable(text: str) -> str:
    """Text of a file, safe in a comment and a message."""
    return re.sub(r"[^\x20-\x7e]", "?", text)[:64]
