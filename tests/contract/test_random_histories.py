"""Long random histories over random policies; what was read once is read again after every step."""

import copy
import pickle

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.contract.harness import BACKENDS, FULL, Pair
from tests.contract.policies import POOL, open_capacity, pool_class

MOST_ROWS = 4
widths = st.integers(0, 24)
picks = st.lists(st.integers(0, 63), min_size=1, max_size=MOST_ROWS)


class Histories(RuleBasedStateMachine):
    """One cache beside the judge. `spare`: an earlier state of it, to be merged in."""

    backend = "torch"

    @initialize(
        name=st.sampled_from(sorted(POOL)), rows=st.integers(1, 3), seed=st.integers(0, 2**31)
    )
    def build(self, name, rows, seed):
        clauses = POOL[name]
        options = {"seed": seed, "hold": 5, "cls": pool_class(name), **open_capacity(clauses)}
        self.pair = Pair(clauses, rows, backend=self.backend, **options)
        self.spare = None

    @property
    def rows(self) -> int:
        return self.pair.reference.batch_size

    # -- appends

    @rule(times=st.integers(1, 9), query32=st.booleans())
    def decode(self, times, query32):
        for _ in range(times):
            self.pair.decode(torch.float32 if query32 else None)

    @rule(width=widths, query32=st.booleans())
    def window(self, width, query32):
        self.pair.window(width, torch.float32 if query32 else None)

    @rule(lengths=st.lists(st.integers(0, 11), min_size=MOST_ROWS, max_size=MOST_ROWS),
          left=st.lists(st.integers(0, 5), min_size=MOST_ROWS, max_size=MOST_ROWS))  # fmt: skip
    def prepare_prefill(self, lengths, left):
        padding = self.pair.policy.padding
        if not padding.right:  # then all rows end together
            end = max(a + b for a, b in zip(lengths, left, strict=True))
            left = [end - n for n in lengths] if padding.left else [0] * MOST_ROWS
            lengths = lengths if padding.left else [end] * MOST_ROWS
        self.pair.call(
            "prepare_prefill", lengths[: self.rows], left[: self.rows] if padding.left else None
        )

    @rule()
    def finalize_prefill(self):
        self.pair.call("finalize_prefill")

    # -- taking back

    @rule(
        n=st.lists(st.integers(0, 8), min_size=MOST_ROWS, max_size=MOST_ROWS), bypass=st.booleans()
    )
    def trim_rows(self, n, bypass):
        self.pair.trim(n[: self.rows], bypass)

    @rule(n=st.integers(0, 6), bypass=st.booleans())
    def trim(self, n, bypass):
        self.pair.trim(n, bypass)

    @precondition(lambda self: self.pair.reference.prefill is None)
    @rule(width=st.integers(1, 5), n=st.integers(0, 4))
    def verify(self, width, n):
        """A speculative window, then its rollback."""
        self.pair.window(width)
        self.pair.trim(min(n, width), bypass=self.pair.policy.trim.bypass_tokens > 0)

    # -- rows and state

    @rule(picks=picks)
    def filter_rows(self, picks):
        self.pair.call("filter_rows", [pick % self.rows for pick in picks])

    @precondition(lambda self: self.pair.reference.prefill is None)
    @rule(pick=st.integers(0, 63))
    def extract_row(self, pick):
        self._becomes(self.pair.extract(pick % self.rows))

    @precondition(lambda self: self.pair.reference.prefill is None)
    @rule()
    def keep_spare(self):
        self.spare = self.pair.branch()

    @precondition(lambda self: self.spare is not None and self.pair.reference.prefill is None)
    @rule(first=st.booleans())
    def merge_rows(self, first):
        pairs = [self.pair, self.spare]
        if self.rows + self.spare.reference.batch_size > MOST_ROWS:
            pairs = [pair.extract(0) for pair in pairs]
        merged = pairs[0].merge(pairs[1]) if first else pairs[1].merge(pairs[0])
        self.spare.check()
        self._becomes(merged)

    @precondition(lambda self: self.pair.reference.prefill is None)
    @rule(how=st.sampled_from(["clone", "deepcopy", "pickle", "save_load"]))
    def copied(self, how):
        if how == "save_load":
            self._becomes(self.pair.save_load())
        elif how == "clone":
            self._becomes(self.pair.branch())
        elif how == "deepcopy":
            self._becomes(self.pair.branch(copy.deepcopy(self.pair.cache)))
        else:
            self._becomes(self.pair.branch(pickle.loads(pickle.dumps(self.pair.cache))))

    @rule()
    def reset(self):
        self.pair.call("reset")

    def _becomes(self, pair):
        pair.held = self.pair.held  # they outlive the cache they came from
        self.pair = pair
        pair.check()

    # -- always

    @rule(pick=st.integers(0, 63))
    def close(self, pick):
        if self.pair.held:
            self.pair.held.pop(pick % len(self.pair.held)).read.close()

    @invariant()
    def held_reads_answer_as_before(self):
        if hasattr(self, "pair"):
            self.pair.recheck()


def _machine(backend: str) -> type:
    machine = type(f"Histories_{backend}", (Histories,), {"backend": backend})
    machine.TestCase.settings = settings(
        max_examples=1500 if FULL else 100,
        stateful_step_count=40 if FULL else 25,
        deadline=None,
        derandomize=not FULL,
        suppress_health_check=list(HealthCheck),
    )
    return machine.TestCase


for _backend in BACKENDS:
    globals()[f"TestHistories_{_backend}"] = _machine(_backend)
