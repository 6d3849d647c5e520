"""mlx-lm as an outside oracle: its ring of one sequence without sinks and its full-attention batch show the same tokens.

Its batch ring is wrong for chunks after rotation and its `keep` differs between paths: not asked.
"""

import random

import pytest
import torch

from tests.contract.harness import Pair

mx = pytest.importorskip("mlx.core")
caches = pytest.importorskip("mlx_lm.models.cache")

Seen = list  # row by row, column by column: the numbers of the tokens seen, oldest first


def _append(cache, numbers: torch.Tensor) -> Seen:
    """Append tokens whose key is their number; what mlx-lm's mask leaves of what its cache returns. numbers [B, L]."""
    width = numbers.shape[1]
    mask = cache.make_mask(width, return_array=True) if width > 1 else cache.make_mask(width)
    keys = mx.array(numbers[:, None, :, None].float().numpy())
    stored, _ = cache.update_and_fetch(keys, keys)
    stored = torch.tensor(stored.tolist())[:, 0, :, 0]
    seen = torch.ones(numbers.shape[0], width, stored.shape[1], dtype=torch.bool)
    if mask is not None:
        mask = torch.tensor(mask.tolist())
        seen = seen & (mask[:, 0] if mask.dim() == 4 else mask)
    return [[sorted(stored[r][keep].int().tolist()) for keep in row] for r, row in enumerate(seen)]


@pytest.mark.parametrize("window", [1, 2, 4, 7])
@pytest.mark.parametrize("seed", range(4))
def test_a_ring_of_one_sequence(window, seed, backend):
    choose = random.Random(seed)
    theirs, ours = (
        caches.RotatingKVCache(window),
        Numbered(f"window {window} storage ring", 1, backend),
    )
    for _ in range(12):
        width = choose.choice([1, 1, 1, 2, 3, window, window + 2])
        numbers = ours.next(width)
        assert ours.append(numbers) == _append(theirs, numbers)


@pytest.mark.parametrize("left", [[0, 0], [0, 3], [2, 5, 0]], ids=str)
def test_a_full_batch_with_left_padding(left, backend):
    choose = random.Random(len(left))
    theirs, ours = (
        caches.BatchKVCache(left),
        Numbered("window full padding left", len(left), backend),
    )
    width = max(left) + 4
    lengths = [width - pad for pad in left]
    numbers = ours.next(width)
    real = [slice(pad, None) for pad in left]
    ours.cache.prepare_prefill(lengths, left)
    expected = _append(theirs, numbers)
    answer = ours.append(numbers, padded=left)
    ours.cache.finalize_prefill()
    assert [row[keep] for row, keep in zip(answer, real, strict=True)] == [
        row[keep] for row, keep in zip(expected, real, strict=True)
    ]
    for _ in range(8):
        numbers = ours.next(choose.choice([1, 1, 2, 5]))
        assert ours.append(numbers) == _append(theirs, numbers)


class Numbered:
    """Our cache, with numbered tokens; what a column sees is told by its values, a place of its own for each number."""

    PLACES = 96

    def __init__(self, clauses: str, rows: int, backend: str):
        self.pair = Pair(f"{clauses} dim key 8 value {self.PLACES}", rows, backend=backend)
        self.cache, self.count = self.pair.cache, 0

    def next(self, width: int) -> torch.Tensor:
        rows = self.cache.batch_size
        numbers = torch.arange(self.count, self.count + width).expand(rows, width)
        self.count += width
        return numbers

    def append(self, numbers: torch.Tensor, padded=None) -> Seen:
        rows, width = numbers.shape
        values = torch.nn.functional.one_hot(numbers, self.PLACES).float()[:, None]
        zeros = torch.zeros(rows, 1, width, 8)
        append = (
            self.cache.append_decode if width == 1 and padded is None else self.cache.append_window
        )
        out = append(zeros, values).attend(torch.zeros(rows, 2, width, 8))[:, 0]
        return [[row[i].nonzero().flatten().tolist() for i in range(width)] for row in out]
