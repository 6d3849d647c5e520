"""The cases from the field: exact answers, whatever the backend. See tests/cases/README.md."""

import json
import math
from pathlib import Path

import pytest
import torch

from tests.contract.harness import DEVICE, make_cache, refused

CASES = json.loads((Path(__file__).parents[1] / "cases" / "cases.json").read_text())
QUERY_HEADS, DIM = 2, 8


class Player:
    """Plays a case's steps; keys and queries are 0, a token's value is its position."""

    def __init__(self, case: dict, backend: str):
        self.case, self.backend = case, backend
        self.cache = make_cache(case["clauses"], case.get("rows", 1), backend=backend)

    def step(self, step: dict) -> None:
        kind = next(iter(step))
        if step.get("refused"):
            before = self.cache.offsets
            refused(lambda: getattr(self, kind)(step), RuntimeError)
            assert self.cache.offsets == before
            return
        answers = getattr(self, kind)(step)
        if "sees" in step:
            assert answers == [pytest.approx(row, rel=1e-6) for row in step["sees"]]

    def window(self, step: dict) -> list[list[float]]:
        return self._append("append_window", step["window"], 2 if step.get("twice") else 1)

    def decode(self, step: dict) -> list[list[float]]:
        columns = [self._append("append_decode", 1) for _ in range(step["decode"])]
        return [sum(row, []) for row in zip(*columns, strict=True)]

    def prefill(self, step: dict) -> list[list[float]]:
        lengths = step["prefill"]
        self.cache.prepare_prefill(lengths, step.get("left"))
        self.left, self.lengths = list(step.get("left") or [0] * len(lengths)), list(lengths)
        chunks = [self._append("append_window", width, prepared=True) for width in step["splits"]]
        self.cache.finalize_prefill()
        return [sum(row, []) for row in zip(*chunks, strict=True)]

    def trim(self, step: dict) -> None:
        self.cache.trim(step["trim"], bypass=step.get("bypass", False))

    def trimmable(self, step: dict) -> None:
        assert self.cache.is_trimmable(step["trimmable"]) is step["is"]

    def positions(self, step: dict) -> None:
        assert self.cache.positions(1).tolist() == step["positions"]

    def extract(self, step: dict) -> None:
        self.cache = self.cache.extract_row(step["extract"])

    def filter(self, step: dict) -> None:
        assert self.cache.filter_rows(step["filter"]) is None

    def reset(self, step: dict) -> None:
        self.cache.reset()

    def save_load(self, step: dict) -> None:
        state = self.cache.state_dict()
        self.cache = make_cache(self.case["clauses"], self.cache.batch_size, backend=self.backend)
        self.cache.load_state_dict(state)

    def _append(
        self, name: str, width: int, times: int = 1, prepared: bool = False
    ) -> list[list[float]]:
        real = (
            self._real(width)
            if prepared
            else torch.ones(self.cache.batch_size, width, dtype=torch.bool)
        )
        positions = self.cache.positions(width).cpu()
        padding = math.nan if self.case.get("nan_padding") else 0.0
        column = positions.float().masked_fill(~real, padding)[:, None, :, None]
        zero = (column * 0).expand(-1, -1, -1, DIM).to(DEVICE)
        read = getattr(self.cache, name)(zero, column.expand(-1, -1, -1, DIM).to(DEVICE))
        for _ in range(times):
            out = read.attend(zero.expand(-1, QUERY_HEADS, -1, -1)).cpu()
        assert (out == out[:, :1, :, :1]).all(), "every head and dim has the same answer"
        assert not out[:, 0, :, 0][~real].any(), "padding columns answer 0"
        return [row[keep].tolist() for row, keep in zip(out[:, 0, :, 0], real, strict=True)]

    def _real(self, width: int) -> torch.Tensor:
        """Which of the next columns of a prepared prefill hold tokens."""
        rows = []
        for r in range(len(self.left)):
            pad = min(self.left[r], width)
            tokens = min(self.lengths[r], width - pad)
            self.left[r], self.lengths[r] = self.left[r] - pad, self.lengths[r] - tokens
            rows.append([pad <= i < pad + tokens for i in range(width)])
        return torch.tensor(rows, dtype=torch.bool).reshape(len(rows), width)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case, backend):
    player = Player(case, backend)
    for step in case["steps"]:
        player.step(step)
