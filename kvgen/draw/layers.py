"""A model's layers as a strip: the policy of each, whose keys and values it reads, and what all of them cost."""

from __future__ import annotations

from collections.abc import Iterator

from kvgen import model as spec
from kvgen.draw.kinds import seen_as
from kvgen.draw.shapes import frame, rect, text
from kvgen.draw.style import fill_of, text_on
from kvgen.draw.units import bytes_text, times_less
from kvgen.ir import CachePolicy, Model, Program, Stateless
from kvgen.model import LONG_ROW

MOST = 192  # layers drawn; more are counted
_A_LINE = 48
_CELL = 27


def block(program: Program, model: Model, width: int) -> tuple[list[str], float]:
    """Its lines and how high they are."""
    shown = min(model.layers, MOST)
    lines = list(_strip(program, model, shown))
    bottom = 118 + -(-shown // _A_LINE) * (_CELL + 24)
    lines += _legend(program, model, 40, bottom)
    lines += _costs(program, model, width - 560, bottom)
    used = len({model.policy_of(layer) for layer in range(shown)})
    return lines, bottom + max(2, used) * 24 + 30


def _strip(program: Program, model: Model, shown: int) -> Iterator[str]:
    donors = {share.layer: share.donor for share in model.shares}
    more = f", the first {shown} drawn" if shown < model.layers else ""
    yield text(40, 48, f"model {model.name}", 27, font_weight=700)
    words = f"{program.stem}.kv:{model.line} · {model.layers} layers{more}"
    owned = model.layers - len(donors)
    words += f" · {owned} caches, {len(donors)} layers read another's" if donors else ""
    yield text(40, 74, words, 13.5, "mono soft")
    for layer in range(shown):
        x = 40 + layer % _A_LINE * (_CELL + 1)
        y = 100 + layer // _A_LINE * (_CELL + 24)
        yield from _layer(program.policy(model.policy_of(layer)), layer, donors.get(layer), x, y)


def _layer(policy: CachePolicy, layer: int, donor: int | None, x: float, y: float) -> Iterator[str]:
    kind = seen_as(policy)
    look = text_on(kind) if donor is None else ""
    if donor is None:
        yield rect(x, y, _CELL, _CELL, fill=fill_of(kind), rx=3)
    else:
        yield rect(x + 1, y + 1, _CELL - 2, _CELL - 2, fill=fill_of(kind), fill_opacity=0.22, rx=3)
        yield frame(
            x + 1, y + 1, _CELL - 2, _CELL - 2, stroke_width=1, stroke_dasharray="3 2", rx=3
        )
        yield text(x + _CELL / 2, y + _CELL + 12, f"↑{donor}", 10, "mono soft n")
    yield text(x + _CELL / 2, y + 18, str(layer), 11, f"mono n {look}".strip())


def _legend(program: Program, model: Model, x: float, y: float) -> Iterator[str]:
    names = dict.fromkeys(model.policy_of(layer) for layer in range(min(model.layers, MOST)))
    for number, name in enumerate(names):
        policy = program.policy(name)
        shared = sum(model.policy_of(share.layer) == name for share in model.shares)
        words = f"{name}, {model.count(name)} layers" + (
            f", {shared} of them share (dashed)" if shared else ""
        )
        yield rect(x, y + number * 24, 18, 18, fill=fill_of(seen_as(policy)), rx=3)
        yield text(x + 28, y + number * 24 + 13, words, 13)


def _costs(program: Program, model: Model, x: float, y: float) -> Iterator[str]:
    policies = {entry.policy: program.policy(entry.policy) for entry in model.repeat}
    if all(isinstance(policy.storage, Stateless) for policy in policies.values()):
        yield text(x, y + 13, "nothing is stored: for training and scoring", 13)
        return
    tokens = {name: spec.bytes_per_token(p.heads, p.dtype) for name, p in policies.items()}
    whole = LONG_ROW * sum(model.count(name) * tokens[name] for name in policies)
    stored = spec.model_bytes(program, model, LONG_ROW)
    yield text(x, y + 13, f"a row of {LONG_ROW:,} tokens, all layers: {bytes_text(stored)}", 13)
    less = (
        f"{times_less(whole, stored)} less than the {bytes_text(whole)} of"
        if stored < whole
        else "the same as"
    )
    yield text(x, y + 37, f"{less} all tokens in all layers", 13, "soft")
