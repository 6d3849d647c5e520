# Written by kvgen from gemma2.kv and yours to keep: kvgen claims no right to it. Edit gemma2.kv.
# kvgen: gemma2.kv source 787d6e396025 body 9d5c5cc69356 codegen 1
"""Where the rows of a cache stand, on the device as well as on the host."""

from typing import Any

import torch

from ._launch import capturing

FARTHEST = (1 << 30) - (1 << 16)  # kernels count positions in 32 bits; masks use the numbers beyond


class Places:
    """Where the rows stand, on the device: int32 [B, 4], start, first and end of the last columns, and a flag.

    Appends move the rows there, so that a replayed graph goes on where it was. The host knows the same as long as it
    launches the appends itself; after replays it asks.
    """

    __slots__ = ("columns", "device", "ends", "rows")

    def __init__(self, batch_size: int, device: torch.device) -> None:
        self.device = device
        self.rows = torch.zeros(batch_size, 4, dtype=torch.int32, device=device)
        self.ends: tuple[int, ...] = (0,) * batch_size
        self.columns: Any = None  # those that `rows` tells of

    def put(self, columns: Any) -> None:
        """Tell the device of columns that the host knows."""
        self.rows.copy_(self.of(columns))
        self.ends, self.columns = columns.ends, columns

    def place(self, ends: tuple[int, ...]) -> None:
        """Rows stand elsewhere now: after a trim, a row change, a reset or a load."""
        if ends != self.ends:
            self.rows.copy_(on_host([[end, end, end, 0] for end in ends]))
            self.ends = ends
        self.columns = None

    def find(self, columns: Any) -> torch.Tensor:
        """Places of columns, those that were stored last or others."""
        return self.rows if columns is self.columns else self.of(columns).to(self.device)

    def of(self, columns: Any) -> torch.Tensor:
        if max(columns.ends) > FARTHEST:
            raise ValueError(
                f"the triton backend counts {FARTHEST} positions at most, a row is at"
                f" {max(columns.ends)}; use backend='torch'"
            )
        starts, firsts, ends = columns[:3]
        return on_host([[*row, 0] for row in zip(starts, firsts, ends, strict=True)])

    def moved(self) -> tuple[tuple[int, ...], list[int]]:
        """How far replays have brought the rows beyond what the host knows, and which had no room left."""
        table = self.rows.tolist()
        full = [i for i, row in enumerate(table) if row[3]]
        if full:
            self.rows[:, 3] = 0
        ends = tuple(row[2] for row in table)
        moved = tuple(end - known for end, known in zip(ends, self.ends, strict=True))
        self.ends, self.columns = ends, None
        return moved, full


def on_host(table: list[list[int]]) -> torch.Tensor:
    """Numbers on their way to the device, which a graph would copy anew, and wrongly, at each replay."""
    if capturing():
        raise RuntimeError(
            "the rows' places would be copied inside a graph: run this step once outside before it"
            " is captured, with rows that are not padded"
        )
    return torch.tensor(table, dtype=torch.int32)
