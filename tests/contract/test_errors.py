"""Section 11: kinds of errors, and that a failed call leaves the cache as it was."""

import pytest
import torch

from tests.contract.harness import DEVICE, Pair, make_cache, refused

CLAUSES = {
    "ring": "window 4 storage ring slack 2 padding left right",
    "full": "window full padding left right",
    "fixed": "storage fixed 9 padding left right",
    "sinks": "window 3 sinks 2 storage ring padding left right trim off",
}
HUGE = 10**30
JUNK = [None, "x", 1.5, -1, [], [None], {}, object(), float("nan"), HUGE, torch.zeros(2), b"1"]


@pytest.mark.parametrize("clauses", CLAUSES.values(), ids=CLAUSES)
def test_junk_is_a_value_error_everywhere(clauses, backend):
    """Never a TypeError or AttributeError from inside; nothing changes."""
    pair = Pair(clauses, 2, backend=backend)
    pair.window(5)
    k, v = pair.tokens(1)
    for junk in JUNK:
        for call in (
            lambda c, j: c.append_decode(j, v),
            lambda c, j: c.append_decode(k, j),
            lambda c, j: c.append_window(j, v),
            lambda c, j: c.append_window(k, j),
            lambda c, j: c.filter_rows(j),
            lambda c, j: c.filter_rows([j]),
            lambda c, j: c.extract_row(j),
            lambda c, j: type(c).merge_rows(j),
            lambda c, j: type(c).merge_rows([c, j]),
            lambda c, j: c.load_state_dict(j),
        ):
            _value_error(pair.cache, call, junk)
        if junk is not HUGE:  # too many is no wrong kind
            for call in (
                lambda c, j: c.prepare_prefill(j),
                lambda c, j: c.prepare_prefill([1, 1], [j, j]),
                lambda c, j: c.trim(j),
                lambda c, j: c.is_trimmable(j),
                lambda c, j: c.positions(j),
            ):
                _value_error(pair.cache, call, junk)
    pair.check()
    pair.probe()
    pair.recheck()


def _value_error(cache, call, junk):
    with pytest.raises(ValueError) as caught:
        call(cache, junk)
    assert str(caught.value)


def test_huge_numbers(backend):
    for clauses in CLAUSES.values():
        cache = make_cache(clauses, 1, backend=backend)
        refused(lambda c=cache: c.trim(HUGE))
        assert not cache.is_trimmable(HUGE)
        refused(lambda c=cache: c.extract_row(HUGE), ValueError)
        refused(lambda c=cache: c.filter_rows([2**63]), ValueError)


def test_a_full_cache(backend):
    """Of fixed storage: refused before anything is written, in any row, in any kind of append."""
    pair = Pair(CLAUSES["fixed"], 2, backend=backend)
    pair.prefill([9, 4])
    error = refused(lambda: pair.cache.append_decode(*pair.tokens(1)), RuntimeError)
    assert "9" in str(error)
    pair.check()
    pair.decode()
    pair.window(3)
    pair.call("prepare_prefill", [0, 5])
    pair.window(5)
    pair.call("finalize_prefill")
    pair.trim([2, 0])
    pair.decode()
    pair.trim([4, 9])
    pair.window(4)
    pair.window(10)
    pair.recheck()


def test_repr_tells_where_it_stands(backend):
    cache = make_cache(CLAUSES["ring"], 2, backend=backend)
    k = torch.zeros(2, 1, 3, 8, device=DEVICE)
    cache.append_window(k, k)
    text = repr(cache)
    assert "TestedCache" in text and "3" in text and "object at" not in text
    assert "\n" not in text or len(text) < 2000
