"""Every kind of policy, ratio, dim and dtype, through prefill, decode, verify and wrapping, against float64."""

import pytest
import torch

from tests.cpu.rig import Rig, policy_text

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16

SHAPES = [  # query heads, kv heads, key dim, value dim: every group, dims that fill vectors and dims that do not
    (2, 2, 16, 16, BF16),
    (2, 2, 64, 64, F32),
    (4, 2, 32, 32, BF16),
    (3, 1, 64, 64, BF16),
    (9, 3, 64, 64, F32),
    (4, 1, 128, 128, BF16),
    (8, 2, 128, 128, F16),
    (5, 1, 80, 80, BF16),
    (6, 1, 96, 96, F32),
    (7, 1, 24, 40, F32),
    (8, 1, 64, 64, BF16),
    (12, 1, 48, 32, BF16),
    (16, 1, 16, 24, F16),
    (71, 1, 64, 64, BF16),
    (2, 1, 1, 1, F32),
    (2, 1, 5, 3, BF16),
    (4, 2, 192, 128, BF16),
    (2, 1, 256, 256, F32),
]

RETENTION = {
    "ring": {},
    "ring without slack": {"storage": "ring"},
    "sinks": {"sinks": "3"},
    "chunk": {"window": None, "chunk": "12"},
    "window and chunk": {"window": "9", "chunk": "12"},
    "window of one": {"window": "1", "storage": "ring slack 2"},
    "contiguous": {"window": None, "storage": "contiguous"},
    "contiguous window": {"storage": "contiguous"},
    "contiguous sinks": {"storage": "contiguous", "sinks": "5"},
    "contiguous chunk": {"window": None, "chunk": "16", "storage": "contiguous"},
    "fixed": {"window": None, "storage": "fixed 400"},
    "softcap": {"softcap": "4.0"},
    "softcap of whole tiles": {
        "softcap": "4.0",
        "window": None,
        "storage": "contiguous",
        "heads": "query 4 kv 2",
        "dim": "64",
    },
    "scale": {"scale": "0.5"},
}


def live(rig: Rig) -> None:
    """A row's life: prefill in one and in pieces, decode, verify windows, until the ring has wrapped more than once."""
    for width in (1, 3, 30, 4, 2, 70):
        rig.window(width)
    rig.decode(5)
    for width in (4, 1, 3, 25, 2):
        rig.window(width)
    rig.decode(2)


@pytest.mark.parametrize(
    ("query", "kv", "key", "value", "dtype"),
    SHAPES,
    ids=[f"{q}/{h} {k} {v} {d}"[:20] for q, h, k, v, d in SHAPES],
)
def test_shapes(query, kv, key, value, dtype):
    dim = f"{key}" if key == value else f"key {key} value {value}"
    rig = Rig(policy_text(heads=f"query {query} kv {kv}", dim=dim), rows=2, dtype=dtype)
    live(rig)
    k, v = rig.tokens(2)
    rig.check(rig.append(k, v), rig.queries(2, dtype=F32))  # float32 queries on any storage


@pytest.mark.parametrize("kind", RETENTION)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_policies(kind, dtype):
    live(Rig(policy_text(**RETENTION[kind]), dtype=dtype))


def test_sink_logits():
    rig = Rig(policy_text(sink_logits=""))
    logits = torch.tensor([0.5, -1.0, 30.0, float("-inf")])
    for width in (30, 1, 4, 2):
        rig.check(rig.append(*rig.tokens(width)), rig.queries(width), logits)


def test_scale_of_a_call():
    rig = Rig(policy_text())
    rig.check(rig.append(*rig.tokens(9)), rig.queries(9), scale=0.01)


WIDTHS = [*range(1, 20), 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129]


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_every_count_of_keys_and_columns(dtype):
    """Lengths around the edges of vectors, blocks and tiles: as keys before a query, as columns of a window."""
    text = policy_text(window=None, storage="fixed 400", dim="32")
    for count in WIDTHS:
        rig = Rig(text, dtype=dtype, seed=count)
        rig.window(count)
        rig.decode()
        rig.window(2)
        rig.window(5)


@pytest.mark.parametrize("window", [2, 7, 8, 9, 63, 64, 65, 130])
def test_windows_around_tiles(window):
    rig = Rig(policy_text(window=str(window), storage="ring slack 15"), dtype=BF16)
    for width in (window, 1, 16, 200, 9, 1, 3):
        rig.window(width)
    rig.decode(3)


def test_long_rows_are_split_and_panels_change():
    """More keys than one part of a decode step, one panel of a window, and one chunk of queries."""
    rig = Rig(
        policy_text(window="1500", storage="ring slack 8", heads="query 8 kv 1", dim="32"),
        dtype=BF16,
    )
    rig.window(700)
    rig.window(900)
    rig.decode(2)
    rig.window(4)
    rig.window(1)
    rig.window(40)
