# pyright: basic
"""A model of stateless layers: forwards through all of them, with gradients, one object for the lengths and the masks."""

from __future__ import annotations

from typing import Any

from kvgen import model
from kvgen.verify.stateless import Check, Forward, ForwardFailure
from kvgen.verify.together import Together, as_written

TWICE = 2  # an append leaves the caches as it found them, so a forward can be repeated


def check(subject: Together, forward: Forward) -> None:
    """Raises ForwardFailure where a layer, or the object, does something else than `kvgen.model` says."""
    try:
        _check(subject, forward)
    except AssertionError as wrong:
        raise ForwardFailure(subject, forward, str(wrong)) from wrong


def _check(subject: Together, forward: Forward) -> None:
    caches = subject.new_caches(forward.rows, row_lengths=forward.row_lengths)
    for turn in range(TWICE):
        for layer, cache in enumerate(caches.layers):
            try:
                Check(subject.layer(layer), forward, cache, turn).run()
            except AssertionError as wrong:
                raise AssertionError(f"layer {layer}: {wrong}") from wrong
        _check_object(subject, forward, caches)


def _check_object(subject: Together, forward: Forward, caches: Any) -> None:
    lengths = forward.lengths or (forward.width,)
    positions = [[i if i < n else 0 for i in range(forward.width)] for n in lengths]
    _same("offsets", caches.offsets, (0,) * forward.rows)
    _same("nbytes", caches.nbytes, 0)
    _same(f"positions({forward.width})", caches.positions(forward.width).tolist(), positions)
    _same("donors", caches.donors, subject.donors)
    _same("is_trimmable(1)", caches.is_trimmable(1), True)
    one = all(cache.masks is caches.masks for cache in caches.layers)
    _same("all layers share one masks", one, True)
    _same("no mask is built twice", caches.masks.builds <= _masks(subject, forward), True)


def _masks(subject: Together, forward: Forward) -> int:
    """How many different ones the layers need."""
    width = range(forward.width)
    seen = {
        tuple(model.visible(policy.retention, p, j) for p in width for j in width)
        for policy in subject.layers
    }
    return len(seen)


def _same(what: str, actual: Any, expected: Any) -> None:
    if actual != expected:
        raise AssertionError(f"of the model: {what} is {actual}, expected {expected}")


def replay(text: str, name: str, backend: str, forward: Forward) -> None:
    """What a counterexample runs."""
    check(as_written(text, name, backend), forward)


def script(failure: ForwardFailure, name: str) -> str:
    """A failure as a short script that shows it."""
    subject, forward = failure.subject, failure.forward
    return f'''"""{failure}

{name}, {subject.scale}. Written by `kvgen verify`.
"""

from kvgen.verify.forwards import replay
from kvgen.verify.stateless import Forward

MODEL = """\\
{subject.text}"""

replay(MODEL, "{subject.name}", "{subject.backend}", {forward!r})
'''
