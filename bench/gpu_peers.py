"""What people attend with on a GPU today, and float64, which judges all of them. Heads of q and k as kvgen has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from bench.gpu_clock import DEVICE


def judged(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor | None
) -> torch.Tensor:
    """Float64, one row and one kv head at a time."""
    out = torch.empty_like(q, dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    for row in range(q.shape[0]):
        for head in range(k.shape[1]):
            heads = slice(head * group, (head + 1) * group)
            scores = q[row, heads].double() @ k[row, head].double().T / math.sqrt(q.shape[-1])
            if seen is not None:
                scores = scores.masked_fill(~seen, -math.inf)
            out[row, heads] = scores.softmax(-1) @ v[row, head].double()
    return out


def error(found: torch.Tensor, want: torch.Tensor) -> float:
    return (found.double() - want).abs().max().item() / max(1.0, want.abs().max().item())


def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor | None,
    causal: bool = False,
) -> Any:
    """Without a mask it may take its fastest kernels."""
    return lambda: F.scaled_dot_product_attention(
        q, k, v, attn_mask=seen, is_causal=causal, enable_gqa=True
    )


def flex(window: int | None, rows: int, columns: int) -> Callable[..., torch.Tensor]:
    """FlexAttention of `rows` queries that are the last of `columns` keys, compiled, as a function of q, k and v."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def rule(b: Any, h: Any, i: Any, j: Any) -> Any:
        p = i + columns - rows
        return (p >= j) & (p - j < window) if window else p >= j

    mask = create_block_mask(rule, None, None, rows, columns, device=DEVICE)
    torch._dynamo.reset()  # after some recompilations it would fall back to code that is not fused
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=True)


def flash_of(window: int | None) -> Callable[..., torch.Tensor]:
    """flash-attn as a function of q, k and v of kvgen's shapes; a view each, as a caller of it would have them."""
    from flash_attn import flash_attn_func

    sides = (window - 1, 0) if window else (-1, -1)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return flash_attn_func(q, k, v, causal=True, window_size=sides).transpose(1, 2)

    return attend


def bound(attend: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: attend(*inputs)


def flashinfer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from flashinfer import single_decode_with_kv_cache

    if q.shape[0] != 1:
        raise RuntimeError("its single decode has batch 1")
    one = q[0, :, 0].contiguous()
    k, v = (x[0].transpose(0, 1).contiguous() for x in (k, v))
    return lambda: single_decode_with_kv_cache(one, k, v)[None, :, None]


def optional(name: str, make: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    try:
        return {name: make()}
    except Exception as problem:  # noqa: BLE001 - not installed, or not for this case
        print(f"  {name}: {type(problem).__name__}: {str(problem).splitlines()[0][:100]}")
        return {}
