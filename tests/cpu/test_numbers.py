"""Numbers that break careless kernels, and inputs that do not lie as the kernel would like."""

import math

import pytest
import torch

from tests.cpu.rig import Rig, policy_text

NAN = math.nan
LINEAR = policy_text(window=None, storage="fixed 200", heads="query 4 kv 1", dim="32")
RING = policy_text()


@pytest.mark.parametrize("text", [LINEAR, RING], ids=["fixed", "ring"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_nan_in_unused_slots_reaches_nothing(text, dtype):
    rig = Rig(text, dtype=dtype)
    rig.cache._storage.keys.fill_(NAN)
    rig.cache._storage.values.fill_(NAN)
    for width in (3, 1, 2, 14, 4):
        rig.window(width)
    rig.decode(2)


@pytest.mark.parametrize("text", [LINEAR, RING], ids=["fixed", "ring"])
def test_nan_that_was_taken_back_reaches_nothing(text):
    rig = Rig(text)
    rig.window(9)
    k, v = rig.tokens(2)
    rig.append(k.fill_(NAN), v.fill_(math.inf))
    rig.forget(2)
    rig.decode(2)
    rig.window(3)


@pytest.mark.parametrize("text", [LINEAR, RING], ids=["fixed", "ring"])
@pytest.mark.parametrize("widths", [(6, 4), (1, 1, 3), (40,)], ids=str)
def test_padding_is_nan_and_answers_zero(text, widths):
    rig = Rig(text, rows=3, dtype=torch.bfloat16)
    rig.window(2)
    lengths, left = [4, 0, 1], [0, 2, 3]
    rig.cache.prepare_prefill(lengths, left)
    done = 0
    for width in widths:
        k, v = rig.tokens(width)
        q = rig.queries(width)
        real = []
        for row in range(3):
            first = min(max(left[row] - done, 0), width)
            end = min(max(left[row] + lengths[row] - done, 0), width)
            real.append((first, max(first, end)))
            for x in (k, v, q):
                x[row, :, : real[row][0]] = NAN
                x[row, :, real[row][1] :] = NAN
        done += width
        rig.check(rig.append(k, v, real), q)
    rig.cache.finalize_prefill()
    rig.decode(2)


@pytest.mark.parametrize("width", [1, 4, 40])
def test_very_large_scores(width):
    """A softmax of differences: one key wins, nothing overflows."""
    rig = Rig(LINEAR, spread=300.0)
    rig.window(30)
    rig.check(rig.append(*rig.tokens(width)), rig.queries(width))
    rig.check(rig.append(*rig.tokens(width)), rig.queries(width) * -1e12)


@pytest.mark.parametrize("width", [1, 4, 40])
def test_denormals(width):
    rig = Rig(LINEAR, spread=1e-42, tolerance=1e-9)
    rig.window(30)
    rig.check(rig.append(*rig.tokens(width)), rig.queries(width))


def test_float16_denormals_and_the_largest():
    rig = Rig(LINEAR, dtype=torch.float16, spread=1e-6)
    rig.window(12)
    rig.spread = 60000.0 / 5
    rig.window(3)
    rig.decode()


@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_any_strides(width, dtype):
    """Columns before heads, numbers two apart, memory that starts anywhere."""
    plain, strided = (Rig(RING, rows=2, dtype=dtype) for _ in range(2))
    for _ in range(2):
        k, v = plain.tokens(width)
        q = plain.queries(width)
        want = plain.append(k, v).attend(q)
        columns_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v, q)]
        assert_same(strided, columns_first, want)
        k, v = plain.tokens(width)
        want = plain.append(k, v).attend(q)
        assert_same(strided, [apart(k), unaligned(v), apart(q)], want)


def assert_same(rig: Rig, tensors: list[torch.Tensor], want: torch.Tensor) -> None:
    k, v, q = tensors
    assert torch.equal(rig.append(k, v).attend(q), want)


def apart(x: torch.Tensor) -> torch.Tensor:
    wide = torch.full((*x.shape, 2), NAN, dtype=x.dtype)
    wide[..., 0] = x
    return wide[..., 0]


def unaligned(x: torch.Tensor) -> torch.Tensor:
    room = torch.empty(x.numel() + 1, dtype=x.dtype)
    room[1:] = x.flatten()
    return room[1:].view(x.shape)


def test_expanded_heads():
    rig = Rig(RING)
    k, v = (x[:, :1].expand_as(x) for x in rig.tokens(5))
    rig.check(rig.append(k, v), rig.queries(5))


def test_no_columns():
    rig = Rig(RING)
    read = rig.append(*rig.tokens(0))
    assert read.attend(rig.queries(0)).shape == (1, 4, 0, 16)
    rig.window(4)


def test_a_read_is_a_snapshot():
    """Held while its tokens are overwritten, once and many times over, alone and with others."""
    for text in (RING, LINEAR):
        rig = Rig(text, rows=2)
        rig.window(19)
        held = []
        for width in (1, 2, 4, 25, 1, 3, 60):
            k, v = rig.tokens(width)
            q = rig.queries(width)
            read = rig.append(k, v)
            held.append((read, q, rig.answer(q, None, None)[0]))
        for read, q, want in held:
            assert (read.attend(q).double() - want).abs().max() < 2e-5
