"""Section 5: taking tokens back."""

import pytest

from tests.contract.harness import Pair, make_cache, refused

RING = "window 4 storage ring slack 2 padding left right"
POLICIES = {
    "ring": RING,
    "no slack": "window 4 storage ring padding left right",
    "window 1": "window 1 storage ring padding left right",
    "sinks": "window 3 sinks 2 storage ring slack 1 padding left right",
    "chunk": "chunk 4 storage ring padding left right",
    "chunk with slack": "chunk 4 storage ring slack 2 padding left right",
    "both": "window 3 chunk 5 storage ring slack 1 padding left right",
    "full": "window full padding left right",
    "fixed": "window 3 storage fixed 64 padding left right",
    "bypass": "window 4 storage ring trim guarded bypass 3 padding left right",
    "bypass below slack": "window 4 storage ring slack 4 trim guarded bypass 2 padding left right",
    "bypass without a ring": "window full trim guarded bypass 2 padding left right",
    "off": "window 4 storage ring trim off padding left right",
}


@pytest.mark.parametrize("name", POLICIES)
def test_what_can_be_taken_back_and_what_comes_after(name, backend):
    """After many histories: every n answers as the judge says, and later reads never see what is gone."""
    for widths in (
        (3,),
        (9,),
        (1,) * 7,
        (4, 3),
        (9, 2),
        (9, 4),
        (9, 5),
        (9, 7),
        (9, 1, 3),
        (2, 9, 0),
    ):
        pair = Pair(POLICIES[name], 2, backend=backend)
        for width in widths:
            pair.decode() if width == 1 else pair.window(width)
        for n in range(pair.reference.offset + 2):
            _trim_and_go_on(pair.branch(), n)
        pair.probe()


def _trim_and_go_on(pair, n):
    pair.trim(n)
    pair.probe()
    pair.window(3)
    pair.trim(1)
    pair.decode()


@pytest.mark.parametrize("name", POLICIES)
def test_ragged_rows(name, backend):
    pair = Pair(POLICIES[name], 3, backend=backend)
    pair.prefill([9, 2, 5], [0, 3, 1])
    for n in ([1, 0, 0], [0, 2, 1], [0, 0, 4], [3, 0, 0], [0, 3, 0], [9, 2, 5]):
        _trim_and_go_on(pair.branch(), n)
    pair.decode()
    pair.window(3)
    for n in ([1, 0, 2], [3, 3, 3], [4, 3, 0], [0, 5, 0], [1, 4, 9]):
        _trim_and_go_on(pair.branch(), n)


@pytest.mark.parametrize("name", POLICIES)
def test_all_rows_or_none(name, backend):
    pair = Pair(POLICIES[name], 2, backend=backend)
    pair.window(6)
    for n in ([1, 7], [7, 1], [0, 7]):
        refused(lambda n=n: pair.cache.trim(n), RuntimeError)
        pair.check()
    pair.probe()


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "bad", [-1, 1.5, "1", None, [1], [1, 1, 1], [1, -1], [1, 0.5], [], [[1, 1]]]
)
def test_bad_numbers(name, bad, backend):
    pair = Pair(POLICIES[name], 2, backend=backend)
    pair.window(3)
    refused(lambda: pair.cache.trim(bad), ValueError)
    refused(lambda: pair.cache.is_trimmable(bad), ValueError)
    refused(lambda: pair.cache.trim(bad, bypass=True), ValueError)
    pair.check()
    pair.probe()


def test_the_default_is_one(backend):
    cache = make_cache(RING, backend=backend)
    assert cache.is_trimmable() is False and cache.is_trimmable(0) is True


@pytest.mark.parametrize("name", ["bypass", "bypass below slack", "bypass without a ring"])
class TestBypass:
    def test_up_to_the_declared_and_the_appended(self, name, backend):
        for warm in (0, 3, 9):
            for width in range(7):
                for n in range(6):
                    pair = Pair(POLICIES[name], 2, backend=backend, hold=0)
                    pair.window(warm)
                    pair.window(width)
                    pair.trim(n, bypass=True)
                    pair.probe()
                    pair.trim([0, 1], bypass=True)
                    pair.probe()

    def test_several_trims_add_up(self, name, backend):
        pair = Pair(POLICIES[name], 1, backend=backend)
        pair.window(9)
        pair.window(3)
        for n in (1, 1, 1, 1, 0):
            pair.trim(n, bypass=True)
        pair.window(3)
        pair.trim(1)
        pair.trim(1, bypass=True)
        pair.trim(2, bypass=True)
        pair.probe()

    def test_what_ends_directly_after(self, name, backend):
        def verified():
            pair = Pair(POLICIES[name], 2, backend=backend)
            pair.window(9)
            pair.window(3)
            return pair

        for change in ("append_decode", "append_window", "filter_rows", "reset"):
            pair = verified()
            state = pair.cache.state_dict()
            if change == "append_decode":
                pair.decode()
            elif change == "append_window":
                pair.window(0)
            else:
                pair.call(change, *([[0, 1]] if change == "filter_rows" else []))
            refused(lambda pair=pair: pair.cache.trim(1, bypass=True), RuntimeError)
            pair.trim(0, bypass=True)
            pair.probe()
        pair = verified()
        pair.cache.load_state_dict(state)
        refused(lambda: pair.cache.trim(1, bypass=True), RuntimeError)

    def test_what_does_not_end_it(self, name, backend):
        pair = Pair(POLICIES[name], 2, backend=backend)
        pair.window(9)
        held = pair.window(3)
        pair.cache.state_dict()
        pair.cache.extract_row(0)
        type(pair.cache).merge_rows([pair.cache, pair.cache])
        clone = pair.branch()
        held.read.close()
        assert pair.cache.is_trimmable(0)
        pair.call("finalize_prefill")
        for each in (pair, clone):
            each.trim(1, bypass=True)
            each.trim([1, 0], bypass=True)
            each.probe()

    def test_a_prepared_prefill_is_no_verify_window(self, name, backend):
        pair = Pair(POLICIES[name], 2, backend=backend)
        pair.prefill([3, 3])
        pair.trim(1, bypass=True)
        pair.window(2)
        pair.trim(2, bypass=True)
        pair.probe()

    def test_a_decode_is_no_verify_window(self, name, backend):
        pair = Pair(POLICIES[name], 2, backend=backend)
        pair.window(3)
        pair.decode()
        pair.trim(1, bypass=True)
        pair.probe()


@pytest.mark.parametrize("name", ["ring", "full", "fixed", "chunk", "off"])
def test_bypass_where_none_is_declared(name, backend):
    pair = Pair(POLICIES[name], 2, backend=backend)
    pair.window(3)
    refused(lambda: pair.cache.trim(1, bypass=True), RuntimeError)
    pair.trim(0, bypass=True)
    pair.probe()


@pytest.mark.parametrize(
    "storage", ["window 4 storage ring", "window full", "storage fixed 16", "chunk 3"]
)
def test_trim_off(storage, backend):
    pair = Pair(f"{storage} trim off", 2, backend=backend)
    pair.window(3)
    assert (
        pair.cache.is_trimmable(0)
        and not pair.cache.is_trimmable(1)
        and not pair.cache.is_trimmable([0, 1])
    )
    pair.trim(0)
    for n in (1, [1, 0], 99):
        refused(lambda n=n: pair.cache.trim(n), RuntimeError)
    refused(lambda: pair.cache.trim(-1), ValueError)
    pair.probe()


def test_a_long_conversation_of_drafts(backend):
    """Verify windows and rollbacks, hundreds of them, through many turns of the ring."""
    for name in ("ring", "bypass", "sinks", "chunk with slack", "bypass below slack"):
        pair = Pair(POLICIES[name], 2, backend=backend, hold=2)
        pair.prefill([7, 3], [0, 4])
        for i in range(40):
            pair.window(i % 4 + 1)
            keep = [
                n for n in ([i % 3, i % 2], [i % 2, 0], [0, 0]) if pair.reference.is_trimmable(n)
            ]
            pair.trim(keep[0])
            if i % 10 == 9:
                pair.decode()
                pair.recheck()
