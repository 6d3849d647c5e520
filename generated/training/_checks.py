# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 919f4d7de567 codegen 1
"""What callers hand in: a clear ValueError before anything is changed."""

from __future__ import annotations

import operator
from typing import Any

import torch

from ._masks import Masks

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def whole_number(x: Any, name: str, at_least: int) -> int:
    """`x` as an int; ValueError for another kind of number or one too small."""
    try:
        number = operator.index(x)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {x!r}") from None
    if number < at_least:
        raise ValueError(f"{name} must be {at_least} or more, got {number}")
    return number


def one_a_row(n: Any, name: str, rows: int) -> tuple[int, ...]:
    """`n`, a whole number or one a row, as one a row."""
    n = n.tolist() if isinstance(n, torch.Tensor) else n
    each = n if isinstance(n, (list, tuple)) else [n] * rows
    counts = tuple([whole_number(x, name, at_least=0) for x in each])
    if len(counts) != rows:
        raise ValueError(
            f"{name} must be one number, or one for each of {rows} rows, got {len(counts)} numbers"
        )
    return counts


def usable_device(device: Any) -> torch.device:
    """The device as tensors name it, with its index."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(
            f"device must be one that torch can use, got {device!r}: {error}"
        ) from None


def stored_dtype(dtype: Any, default: torch.dtype) -> torch.dtype:
    if dtype is None:
        return default
    if dtype not in DTYPES:
        raise ValueError(
            f"dtype must be torch.float32, torch.float16 or torch.bfloat16, got {dtype!r}"
        )
    return dtype


def shared_masks(masks: Any) -> Masks:
    if masks is None:
        return Masks()
    if not isinstance(masks, Masks):
        raise ValueError(f"masks must be another cache's `masks`, or None, got {masks!r}")
    return masks


def shown(x: Any) -> str:
    """A tensor's shape, or what else was handed in."""
    return f"{list(x.shape)}" if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"


def columns_of(k: Any, key_dim: int) -> int:
    """The L of an append_window."""
    if not isinstance(k, torch.Tensor) or k.dim() != 4:
        raise ValueError(f"k must be [rows, kv heads, columns, {key_dim}], got {shown(k)}")
    return k.shape[2]


def check_tensor(
    x: Any, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """ValueError unless `x` is a tensor of that shape, dtype and device."""
    if not isinstance(x, torch.Tensor) or x.shape != shape:
        raise ValueError(f"{name} must be {list(shape)}, got {shown(x)}")
    if x.dtype is not dtype or x.device != device:
        raise ValueError(
            f"{name} must be {dtype} on {device}, got {x.dtype} on {x.device}; convert it first"
        )


def check_entry(
    state: dict[str, Any], name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> Any:
    """An entry of a state; ValueError unless it is a tensor of that shape and dtype."""
    x = state[name]
    if not isinstance(x, torch.Tensor) or x.shape != shape or x.dtype is not dtype:
        kind = f" {x.dtype}" if isinstance(x, torch.Tensor) else ""
        raise ValueError(f"the state's {name} must be {list(shape)} {dtype}, got {shown(x)}{kind}")
    return x


def check_entries(state: Any, expected: set[str], signature: str) -> None:
    """ValueError unless the state has just these entries and that signature."""
    found = state.get("signature", signature) if isinstance(state, dict) else state
    if found != signature:
        raise ValueError(
            f"the state is of {shown(found)}, this cache is {signature!r};"
            " load it into a cache of the policy and dtype that saved it"
        )
    if set(state) != expected:
        got = sorted(map(str, state))
        raise ValueError(
            f"a state has the entries {sorted(expected)}, got {got}; give what state_dict() returned"
        )
