# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 690537371244 codegen 1
"""Where a 2-D attention mask of transformers has padding."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Padding(NamedTuple):
    """Row r of an append holds left[r] padding columns, then lengths[r] tokens, then padding."""

    left: list[int]
    lengths: list[int]

    def right(self, width: int) -> bool:
        """Whether some row ends in padding."""
        return any(left + length < width for left, length in zip(self.left, self.lengths))


def padding_of(
    mask: torch.Tensor, columns: int, width: int, tokens: tuple[int, ...]
) -> Padding | None:
    """The padding among the last `width` columns of a mask [B, columns + width]; None: no padding.

    `tokens`: what each row holds of the `columns` before. ValueError for a mask that is not of this
    shape, or that no cache of positions can follow.
    """
    if mask.shape != (len(tokens), columns + width):
        raise ValueError(
            f"attention_mask must be [{len(tokens)}, {columns + width}], the {columns} columns "
            f"that this cache holds and the {width} new ones, got {list(mask.shape)}; give the "
            "mask of all that was said so far, or reset() the cache for another prompt"
        )
    if width == 1 and columns:
        return _of_one_column(mask, tokens)
    real = mask.bool()
    _check_runs(real, columns, tokens)
    new = real[:, columns:]
    if bool(new.all()):
        return None
    lengths = new.sum(1).tolist()
    left = new.int().argmax(1).tolist()
    for row, length in enumerate(lengths):
        if length == 0:
            left[row] = 0 if tokens[row] else width
    return Padding(left, lengths)


def _of_one_column(mask: torch.Tensor, tokens: tuple[int, ...]) -> Padding | None:
    """A decode step looks at two columns only: one small copy to the host."""
    pairs = mask[:, -2:].bool().tolist()
    for row, (before, now) in enumerate(pairs):
        if now and not before and tokens[row]:
            raise ValueError(_hole(row))
    if all(now for _, now in pairs):
        return None
    left = [int(not now and not tokens[row]) for row, (_, now) in enumerate(pairs)]
    return Padding(left, [int(now) for _, now in pairs])


def _check_runs(real: torch.Tensor, columns: int, tokens: tuple[int, ...]) -> None:
    starts = real[:, 0].int() + (real[:, 1:] & ~real[:, :-1]).sum(1)
    for row, count in enumerate(starts.tolist()):
        if count > 1:
            raise ValueError(_hole(row))
    for row, (said, held) in enumerate(zip(real[:, :columns].sum(1).tolist(), tokens)):
        if said != held:
            raise ValueError(
                f"attention_mask has {said} tokens in row {row} before the new columns, this cache "
                f"holds {held}; give the mask that the cache was filled with, or reset() the cache"
            )


def _hole(row: int) -> str:
    return (
        f"attention_mask has padding between the tokens of row {row}; padding may stand before a "
        "row's first token or after its last one"
    )
