"""Everything that can happen in four calls, over small policies: the cache gives what the judge says, or refuses what it refuses.

A tree of calls: each node is a state, each branch one more call on a clone of it. What is refused changes nothing, so it
has no branch of its own: it is tried on the node before its branches, which would show a change. The last branch of
a node is no clone: it happens to the node itself, whose read is held and must answer as before.

Rings of every kind and full attention, one row and two, are walked to four calls. The other storages are walked to three, and by
the slow tests to four.
"""

import math

import pytest
import torch

from kvgen.verify.reference import ReferenceCache, RefusedError
from tests.contract.harness import DEVICE, package, policy_of, policy_text, refused

SHAPE = "heads query 2 kv 1 dim 4 dtype f32 padding left right "


def _ring(retention: str, slack: int) -> str:
    bypass = f" trim guarded bypass {slack}" if slack else ""
    return f"{SHAPE}{retention} storage ring slack {slack}{bypass}"


POLICIES = {
    **{
        f"W{w}S{s}Slack{k}": _ring(f"window {w} sinks {s}" if s else f"window {w}", k)
        for w in (1, 2, 3)
        for s in (0, 1)
        for k in (0, 1)
    },
    **{f"K{c}Slack{k}": _ring(f"chunk {c}", k) for c in (1, 2, 3) for k in (0, 1)},
    "W2K3": _ring("window 2 chunk 3", 0),
    "W3K2Slack1": _ring("window 3 chunk 2", 1),
    "Full": f"{SHAPE} window full trim guarded bypass 1",
    "FixedFull": f"{SHAPE} window full storage fixed 5",
    "FixedWindow": f"{SHAPE} window 2 sinks 1 storage fixed 12",
    "GrowingWindow": f"{SHAPE} window 2 storage contiguous",
    "GrowingChunk": f"{SHAPE} chunk 3 storage contiguous",
    "TrimOff": f"{SHAPE} window 2 storage ring trim off",
}
OTHER_STORAGES = ("FixedFull", "FixedWindow", "GrowingWindow", "GrowingChunk", "TrimOff")
REACH = {name: int(name[1]) if name[1].isdigit() else 2 for name in POLICIES}


def token(number: int) -> tuple[float, float]:
    """(weight, value), different for every number."""
    return 1.0 + (number * 7 % 11) / 4, (number * 0.618034) % 1 * 2 - 1


class Tokens:
    """Fresh tokens for the columns of one call; two of the same start give the same."""

    def __init__(self, start: int):
        self.next = start

    def __call__(self, rows: int, width: int) -> list[list[tuple[float, float]]]:
        first, self.next = self.next, self.next + rows * width
        return [[token(first + r * width + i) for i in range(width)] for r in range(rows)]


class Driver:
    """A generated cache under the judge's calling convention: a weight w is the key [log w, 0, 0, 0] at scale 1."""

    def __init__(self, cache, spare):
        self.cache, self.spare = cache, spare

    def __getattr__(self, name):
        return getattr(self.cache, name)

    def append_decode(self, columns):
        return self.cache.append_decode(*self._tensors(columns))

    def append_window(self, columns):
        return self.cache.append_window(*self._tensors(columns))

    def _tensors(self, columns):
        k = [[[math.log(w), 0.0, 0.0, 0.0] for w, _ in row] for row in columns]
        v = [[[v, -v, v * v, 1.0] for _, v in row] for row in columns]
        return (torch.tensor(x, device=DEVICE).reshape(len(columns), 1, -1, 4) for x in (k, v))

    def extract_row(self, row):
        return Driver(self.cache.extract_row(row), self.spare)

    def clone(self):
        return Driver(self.cache.clone(), self.spare)

    def merge_spare(self):
        return Driver(type(self.cache).merge_rows([self.cache, self.spare.cache]), self.spare)


class Judge(ReferenceCache):
    spare: ReferenceCache

    def merge_spare(self):
        return self.merge_rows([self, self.spare])


# -- the calls: each takes either side and fresh tokens, and returns (what goes on, its reads)


def _decode(side, tokens):
    return side, [side.append_decode(tokens(side.batch_size, 1))]


def _window(width):
    return lambda side, tokens: (side, [side.append_window(tokens(side.batch_size, width))])


def _prefill(side, tokens):
    rows = range(side.batch_size)
    side.prepare_prefill([2 - r % 2 for r in rows], [r % 2 for r in rows])
    reads = [side.append_window(tokens(side.batch_size, width)) for width in (1, 2)]
    side.finalize_prefill()
    return side, reads


def _trim(n, bypass=False):
    def call(side, tokens):
        side.trim(n, bypass=bypass)
        return side, []

    return call


def _filter(side, tokens):
    side.filter_rows([side.batch_size - 1, 0])
    return side, []


def _extract(side, tokens):
    return side.extract_row(side.batch_size - 1), []


def _merge(side, tokens):
    return side.merge_spare(), []


def calls(reach: int) -> list:
    return [
        _decode, _window(1), _window(2), _window(reach + 1), _trim(1), _trim(2), _trim(1, bypass=True),
        _prefill, _filter, _extract, _merge,
    ]  # fmt: skip


# -- the tree


class Tree:
    def __init__(self, cache_class, clauses: str, reach: int, rows: int, backend: str):
        self.calls, self.nodes = calls(reach), 0
        policy = policy_of(clauses)
        spare = (
            ReferenceCache(policy, 1),
            Driver(cache_class(1, backend=backend, device=DEVICE), None),
        )
        for side in spare:
            _window(2)(side, Tokens(0))
        self.judge = Judge(policy, rows)
        self.judge.spare = spare[0]
        self.driver = Driver(cache_class(rows, backend=backend, device=DEVICE), spare[1])

    def walk(self, depth: int) -> None:
        self._visit(self.judge, self.driver, (), depth)

    def _visit(self, judge, driver, held, depth: int) -> None:
        self.nodes += 1
        self._same_state(judge, driver)
        if depth == 0:
            if not held and self._has_room(judge):
                self._answers(*(_decode(side, Tokens(self.nodes))[1] for side in (judge, driver)))
            return
        branches = [branch for call in self.calls if (branch := self._judged(call, judge, driver))]
        turn = self.nodes % len(branches)  # every call gets its turn at the node itself
        branches = branches[turn:] + branches[:turn]
        for call, following, reads, tokens in branches[:-1]:
            clone, answers = call(driver.clone(), tokens)
            self._visit(following, clone, self._answers(reads, answers), depth - 1)
        call, following, reads, tokens = branches[-1]
        driver, answers = call(driver, tokens)
        self._answers(*zip(*held, strict=True)) if held else None
        self._visit(following, driver, self._answers(reads, answers), depth - 1)

    def _has_room(self, judge) -> bool:
        return judge.slots is None or judge.offset < judge.slots

    def _judged(self, call, judge, driver):
        """(call, the judge after it, its reads, the same tokens), or None: refused by both."""
        start = self.nodes * 13
        try:
            return call, *call(judge.clone(), Tokens(start)), Tokens(start)
        except (ValueError, RuntimeError) as error:
            kinds = (
                (ValueError, RuntimeError) if isinstance(error, RefusedError) else (type(error),)
            )
        side = (
            driver.clone() if call is _prefill else driver
        )  # of a prefill one append may have been done
        refused(lambda: call(side, Tokens(start)), *kinds)
        return None

    def _same_state(self, judge, driver) -> None:
        assert driver.offsets == judge.offsets
        for n in (0, 1, 2, 3, list(judge.offsets)):
            assert driver.is_trimmable(n) == judge.is_trimmable(n), (
                f"is_trimmable({n}) at {judge.rows}"
            )

    def _answers(self, judged, reads) -> tuple:
        for expected, read in zip(judged, reads, strict=True):
            self._answer(expected, read)
        return tuple(zip(judged, reads, strict=True))

    def _answer(self, judged, read) -> None:
        width = len(judged.queries[0])
        q = torch.zeros(len(judged.queries), 2, width, 4, device=DEVICE)
        q[:, 0, :, 0], q[:, 1, :, 0] = 1.0, -1.0
        out, lse = read.attend(q, scale=1.0, return_lse=True)
        out, lse = out.tolist(), lse.tolist()
        for r, row in enumerate(judged.sees()):
            for i, seen in enumerate(row):
                for head in (0, 1):
                    _same_answer(out[r][head][i], lse[r][head][i], seen, inverse=head == 1)


def _same_answer(out: list[float], lse: float, seen: list | None, inverse: bool) -> None:
    if seen is None:
        assert out == [0.0] * 4 and lse == -math.inf, "padding answers 0"
        return
    weights = [1 / w if inverse else w for w, _ in seen]
    total = sum(weights)
    values = [v for _, v in seen]
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / total
    square = sum(w * v * v for w, v in zip(weights, values, strict=True)) / total
    for actual, expected in zip(out, (mean, -mean, square, 1.0), strict=True):
        assert abs(actual - expected) < 2e-5, f"{out} of {seen}"
    assert abs(lse - math.log(total)) < 2e-5, f"lse {lse} of {seen}"


def small_classes():
    """All these policies are one package."""
    return package("kvgen 1\n" + "".join(policy_text(*item) for item in POLICIES.items()))


def walk(name: str, rows: int, depth: int, backend: str) -> int:
    tree = Tree(
        getattr(small_classes(), f"{name}Cache"), POLICIES[name], REACH[name], rows, backend
    )
    tree.walk(depth)
    return tree.nodes


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", [name for name in POLICIES if name not in OTHER_STORAGES])
def test_all_histories_of_four_calls(name, rows, backend):
    walk(name, rows, 4, backend)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", OTHER_STORAGES)
@pytest.mark.parametrize("depth", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_all_short_histories_of_other_storages(name, rows, depth, backend):
    walk(name, rows, depth, backend)
