# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body a20f62d86217 codegen 1
"""Which Triton kernel a stored policy takes for which step: the constants that each is made with."""

from typing import Any

import torch

from ._launch import DecodePlan, Kernel, Target, TilePlan, power_of_two


class MadeKernels:
    """Kernels of one policy, made as steps need them. A policy's class adds what they are made of."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    ring: bool  # columns wrap, and more of them than fit wait beside the ring
    plans: dict[tuple[str, int], tuple[DecodePlan, TilePlan]]  # by target and bytes an element
    append_step: Any
    append_columns: Any
    decode: Any
    merge: Any
    window: Any

    def _for(self, target: Target, dtype: torch.dtype) -> None:
        self._target, self.dtype = target, dtype
        self._kernels: dict[Any, Kernel] = {}

    @classmethod
    def ahead(cls, target: str, dtype: torch.dtype) -> "MadeKernels":
        """Kernels for a target without a device: the methods below say what to compile."""
        kernels = object.__new__(cls)
        kernels._for(Target(target), dtype)
        return kernels

    def _made(self, function: Any, **constants: Any) -> Kernel:
        """A kernel with these constants, the same each time."""
        key = function.__name__, *constants.values()
        if key not in self._kernels:
            self._kernels[key] = Kernel(function, **constants)
        return self._kernels[key]

    def _plan(self, dtype: torch.dtype) -> tuple[DecodePlan, TilePlan]:
        """The plans for queries of a dtype, which keys and values are multiplied in."""
        return self.plans[self._target.target, dtype.itemsize]

    def step_kernel(self, width: int, keys_first: bool, values_first: bool) -> Kernel:
        return self._made(
            self.append_step,
            COLUMNS=width,
            KEY_COLUMNS_FIRST=keys_first,
            VALUE_COLUMNS_FIRST=values_first,
            LINES=min(power_of_two(self.kv_heads * width), self._lines()),
            num_warps=4,
        )

    def columns_kernel(self, keys_first: bool, values_first: bool) -> Kernel:
        return self._made(
            self.append_columns,
            KEY_COLUMNS_FIRST=keys_first,
            VALUE_COLUMNS_FIRST=values_first,
            LINES=self._lines(),
            num_warps=4,
        )

    def _lines(self) -> int:
        """Tokens of a head that a program of 4 warps copies at once: 8 KB of each plane."""
        line = power_of_two(max(self.key_dim, self.value_dim)) * self.dtype.itemsize
        return max(1, 8192 // line)

    def decode_kernel(self, width, columns_first, ragged, scale, dtype) -> Kernel:
        """`ragged`: some of the columns are padding."""
        plan, lines = self._plan(dtype)[0], self.query_heads // self.kv_heads * width
        rows = min(max(16, power_of_two(lines)), plan.rows)
        return self._made(
            self.decode,
            COLUMNS=width,
            COLUMNS_FIRST=columns_first,
            RAGGED=ragged,
            SCALE=scale,
            PRECISION=self._target.precision,
            ROWS=rows,
            BLOCKS=-(-lines // rows),
            KEYS=plan.keys,
            SPLITS=plan.splits,
            SPLIT=plan.split,
            num_warps=plan.warps,
            num_stages=plan.stages,
            **self._target.registers(rows, dtype.itemsize),
        )

    def merge_kernel(self, width: int, dtype: torch.dtype) -> Kernel:
        splits = self._plan(dtype)[0].splits
        block = power_of_two(splits)
        large = block * power_of_two(self.value_dim) > 8192  # 4 warps would spill
        return self._made(
            self.merge,
            COLUMNS=width,
            SPLITS=splits,
            SPLITS_BLOCK=block,
            num_warps=8 if large else 4,
        )

    def window_kernel(self, columns_first, held, scale, dtype) -> Kernel:
        """`held`: a row has tokens in its ring before the columns."""
        plan = self._plan(dtype)[1]
        return self._made(
            self.window,
            COLUMNS_FIRST=columns_first,
            **({"HELD": held} if self.ring else {}),
            SCALE=scale,
            PRECISION=self._target.precision,
            ROWS=plan.rows,
            KEYS=plan.keys,
            STAGES=plan.stages,
            EDGE_STAGES=plan.edge_stages,
            num_warps=plan.warps,
        )
