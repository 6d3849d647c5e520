"""One file a clause: its dataclass, its own checks, its words for `explain` and `list`."""

from __future__ import annotations

from kvgen.clauses import (
    chunk,
    dim,
    dtype,
    heads,
    layers,
    padding,
    repeat,
    scale,
    share,
    sink_logits,
    sinks,
    softcap,
    stateless,
    storage,
    trim,
    window,
)
from kvgen.clauses.kind import Kind

# In manual order.
POLICY: tuple[Kind[object], ...] = (
    heads.KIND,
    dim.KIND,
    dtype.KIND,
    scale.KIND,
    softcap.KIND,
    sink_logits.KIND,
    window.KIND,
    sinks.KIND,
    chunk.KIND,
    storage.KIND,
    stateless.KIND,
    padding.KIND,
    trim.KIND,
)
MODEL: tuple[Kind[object], ...] = (layers.KIND, repeat.KIND, share.KIND)
ALL = POLICY + MODEL

BY_KEYWORD = {kind.keyword: kind for kind in ALL}
FORMS = {kind.keyword: kind.forms for kind in ALL}
