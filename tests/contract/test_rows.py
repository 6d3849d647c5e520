"""Section 6: rows."""

import copy
import pickle

import pytest
import torch

from tests.contract.harness import (
    DEVICE,
    Pair,
    make_cache,
    package,
    program_text,
    refused,
    storage_tensors,
)

POLICIES = {
    "ring": "window 4 storage ring slack 2 padding left right trim guarded bypass 2",
    "no slack": "window 4 storage ring padding left right",
    "sinks": "window 3 sinks 2 storage ring padding left right",
    "chunk": "chunk 4 storage ring padding left right",
    "full": "window full padding left right",
    "fixed": "storage fixed 64 padding left right",
}


@pytest.fixture(params=POLICIES)
def clauses(request):
    return POLICIES[request.param]


def ragged(clauses, backend, last) -> Pair:
    """Three rows at places of their own; the last append may still wait beside the ring."""
    pair = Pair(clauses, 3, backend=backend)
    pair.prefill([9, 2, 5], [0, 3, 1])
    pair.window(last)
    return pair


LAST = [1, 2, 4, 5, 9]


@pytest.mark.parametrize("last", LAST)
def test_extract_row(clauses, last, backend):
    pair = ragged(clauses, backend, last)
    rows = [pair.extract(row) for row in range(3)]
    for step in (1, 3, 1, 6, 1):
        for row in rows:
            row.window(step)
            row.decode()
            row.recheck()
        pair.decode()
    assert [row.cache.batch_size for row in rows] == [1, 1, 1]


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("rows", [[0], [2], [2, 0], [1, 1, 1], [0, 1, 2], [2, 1, 0, 2, 1]], ids=str)
def test_filter_rows(clauses, last, rows, backend):
    pair = ragged(clauses, backend, last)
    assert pair.cache.filter_rows(list(rows)) is None
    pair.reference.filter_rows(rows)
    pair.check()
    pair.recheck()  # reads opened before are of the rows as they were
    pair.trim(next(n for n in (2, 1, 0) if pair.reference.is_trimmable(n)))
    for step in (1, 3, 1, 9):
        pair.window(step)
    pair.recheck()


@pytest.mark.parametrize("last", LAST)
def test_merge_rows(clauses, last, backend):
    first, second = ragged(clauses, backend, last), Pair(clauses, 1, backend=backend, seed=7)
    second.window(3)
    empty = Pair(clauses, 2, backend=backend)
    merged = first.merge(empty, second, first)
    assert merged.cache.batch_size == 9
    merged.check()
    for source in (first, second, empty):
        source.check()
    for step in (1, 3, 1, 9):
        merged.window(step)
    for source in (first, second, empty):  # untouched
        source.probe()
        source.recheck()
        source.window(3)
        source.trim(next(n for n in (2, 1, 0) if source.reference.is_trimmable(n)))
        source.decode()
    one = second.merge()
    one.probe()


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize(
    "how", ["clone", "lazy clone", "deepcopy", "pickle", "copy of a held read's cache"]
)
def test_copies(clauses, last, how, backend):
    pair = ragged(clauses, backend, last)
    make = {
        "clone": lambda c: c.clone(),
        "lazy clone": lambda c: c.clone(lazy=True).clone(lazy=True),
        "deepcopy": copy.deepcopy,
        "pickle": lambda c: pickle.loads(pickle.dumps(c)),
        "copy of a held read's cache": lambda c: copy.deepcopy({"cache": c})["cache"],
    }[how]
    other = pair.branch(make(pair.cache))
    assert (
        other.cache.backend == pair.cache.backend and other.cache.signature == pair.cache.signature
    )
    for step in (1, 3, 6):
        other.window(step)
        pair.decode()
    other.recheck()
    pair.recheck()
    other.call("reset")
    pair.probe()


@pytest.mark.parametrize("n", [1, 2])
def test_a_copy_is_directly_after_the_window_too(n, backend):
    pair = Pair(POLICIES["ring"], 2, backend=backend)
    pair.window(9)
    pair.window(3)
    copies = [pair.cache.clone(), copy.deepcopy(pair.cache), pickle.loads(pickle.dumps(pair.cache))]
    for cache in copies:
        other = pair.branch(cache)
        other.trim(n, bypass=True)
        other.probe()


WRITES = {
    "append_decode": lambda pair: pair.decode(),
    "append_window": lambda pair: (pair.window(2), pair.window(1)),
    "a long window": lambda pair: pair.window(40),
    "trim": lambda pair: pair.trim(1),
    "reset": lambda pair: pair.call("reset"),
    "filter_rows": lambda pair: pair.call("filter_rows", [2, 0, 1]),
    "load_state_dict": lambda pair: pair.cache.load_state_dict(pair.cache.state_dict()),
}


@pytest.mark.parametrize("first", ["source", "clone"])
@pytest.mark.parametrize("write", WRITES)
def test_a_lazy_clone_is_copied_by_the_first_write(clauses, write, first, backend):
    """Of either; what the other holds, and reads of before, stay."""
    pair = ragged(clauses, backend, 4)
    pair.decode()
    before = {t.data_ptr() for t in _planes(pair.cache)}
    other = pair.branch(pair.cache.clone(lazy=True))
    third = pair.branch(pair.cache.clone(lazy=True))
    assert {t.data_ptr() for t in _planes(other.cache)} == before
    assert other.cache.nbytes == pair.cache.nbytes
    writer, reader = (pair, other) if first == "source" else (other, pair)
    WRITES[write](writer)
    assert not _stored(writer) & _stored(reader)
    assert _stored(reader) == _stored(third) <= before
    for each in (writer, reader, third):
        each.recheck()
        each.probe()


def _stored(pair) -> set[int]:
    """The addresses of what a cache stores, of rows that are waiting not."""
    storage = pair.cache._storage
    return {storage.keys.data_ptr(), storage.values.data_ptr()}


def test_reset(clauses, backend):
    pair = ragged(clauses, backend, 5)
    assert pair.cache.reset() is None
    pair.reference.reset()
    pair.check()
    for step in (1, 3, 6):
        pair.window(step)
    pair.recheck()


def test_wrong_rows(clauses, backend):
    pair = ragged(clauses, backend, 3)
    for bad in ([], [3], [-1], [0, 3], [1.5], ["0"], None, 1, [None]):
        refused(lambda bad=bad: pair.cache.filter_rows(bad), ValueError)
    for bad in (3, -1, 1.5, "0", None, [0]):
        refused(lambda bad=bad: pair.cache.extract_row(bad), ValueError)
    pair.check()
    pair.probe()


def test_what_cannot_be_merged(backend):
    made = package(
        program_text(
            dict(zip(("A", "B", "C"), ["window 4", "window 5", "window full"], strict=True))
        )
    )
    caches = [getattr(made, f"{n}Cache")(1, backend=backend, device=DEVICE) for n in "ABC"]
    cls = made.ACache
    for bad in (
        [],
        [caches[0], caches[1]],
        [caches[0], caches[2]],
        [caches[1]],
        [caches[0], None],
        None,
        3,
        caches[0],
    ):
        refused(lambda bad=bad: cls.merge_rows(bad), ValueError)
    half = cls(1, backend=backend, device=DEVICE, dtype=torch.float16)
    refused(lambda: cls.merge_rows([caches[0], half]), ValueError)
    small, large = (make_cache("storage fixed", backend=backend, capacity=n) for n in (4, 8))
    refused(lambda: type(small).merge_rows([small, large]), ValueError)
    busy = make_cache("window 4 padding right", 2, backend=backend)
    busy.prepare_prefill([1, 2])
    refused(lambda: type(busy).merge_rows([busy, busy]), RuntimeError)


def test_nothing_of_the_source_is_pinned(clauses, backend):
    """What these return holds its own rows only."""
    pair = Pair(clauses, 8, backend=backend, hold=0)
    pair.window(40)
    held = pair.window(3)
    for other, rows in (
        (pair.cache.extract_row(5), 1),
        (pair.cache.clone(), 8),
        (type(pair.cache).merge_rows([pair.cache]), 8),
    ):
        assert other.nbytes <= pair.cache.nbytes * rows // 8
        mine = {t.untyped_storage().data_ptr() for t in _planes(other)}
        assert not mine & {t.untyped_storage().data_ptr() for t in _planes(pair.cache)}
        assert (
            sum(t.untyped_storage().nbytes() for t in _planes(other))
            <= pair.cache.nbytes * rows // 8
        )
    pair.cache.filter_rows([3])
    assert (
        sum(t.untyped_storage().nbytes() for t in _planes(pair.cache))
        <= (64 + 66) * pair.cache.bytes_per_token
    )
    held.check()


def _planes(cache) -> list:
    return [
        t
        for t in storage_tensors(vars(cache))
        if t.dim() == 4
        and t.is_floating_point()
        and t.shape[0] == cache.batch_size
        and t.shape[3] == 8
    ]


def test_filter_to_another_number_of_rows_and_back(clauses, backend):
    pair = ragged(clauses, backend, 4)
    for rows in ([0, 1, 2, 0, 1, 2], [5, 4], [1, 0, 1]):
        pair.call("filter_rows", rows)
        pair.decode()
        pair.window(3)
    pair.recheck()


def test_beam_search(clauses, backend):
    """Rows are reordered with repeats at every step, for long."""
    pair = Pair(clauses, 1, backend=backend)
    pair.window(6)
    pair.call("filter_rows", [0, 0, 0])
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        pair.decode()
        pair.call("filter_rows", torch.randint(3, (3,), generator=generator).tolist())
    pair.recheck()
