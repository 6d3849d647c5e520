# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body 273a30e96b2c codegen 1
"""How a stateful cache is saved, and loaded again."""

from __future__ import annotations

from typing import Any

import torch

from ._checks import check_entries, check_entry


class SavedState:
    """The part of a stateful cache that makes a state of it, and a cache of a state."""

    def state_dict(self) -> dict[str, Any]:
        """An independent snapshot: tensors and strings only. Keys and values are those held, row after row, by position."""
        self._settled("state_dict")
        cache = self._written()
        planes = cache._storage.keys, cache._storage.values
        held = [(0, slice(0, 0)), *cache._held()]
        k, v = (torch.cat([plane[row][:, at] for row, at in held], 1) for plane in planes)
        numbers = {name.lstrip("_"): torch.tensor(getattr(cache, name)) for name in cache._saved()}
        return {"signature": cache.signature, **numbers, "keys": k, "values": v}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what was saved from a cache of the same `signature` and batch size, on any backend or device.

        Raises ValueError, and changes nothing, for a state that is not of such a cache.
        """
        self._settled("load_state_dict")
        self._adopt(state, self._check_state(state))
        self._tell_kernels()

    def _check_state(self, state: dict[str, Any]) -> Any:
        """A cache without storage that has the state's rows."""
        names = [name.lstrip("_") for name in self._saved()]
        check_entries(state, {"signature", "keys", "values", *names}, self.signature)
        numbers = [self._saved_numbers(state, name) for name in names]
        new = self._shell(self._batch_size)
        new._start()
        for name, value in zip(self._saved(), numbers):
            setattr(new, name, value)
        new._check_saved()
        tokens = sum(at.stop - at.start for _, at in new._held())
        check_entry(state, "keys", (self.kv_heads, tokens, self.key_dim), self._dtype)
        check_entry(state, "values", (self.kv_heads, tokens, self.value_dim), self._dtype)
        return new

    def _adopt(self, state: dict[str, Any], new: Any) -> None:
        """Take over a checked state; storage of the right size keeps its address."""
        self.reset()
        if new._slots() != self._storage.slots:
            self._storage = new._new_storage(self._batch_size)
        for name in self.PER_ROW:
            setattr(self, name, getattr(new, name))
        done = 0
        for row, at in self._held():
            part = slice(done, done := done + at.stop - at.start)
            self._storage.keys[row][:, at] = state["keys"][:, part].to(self._device)
            self._storage.values[row][:, at] = state["values"][:, part].to(self._device)

    def _held(self) -> list[tuple[int, slice]]:
        """(row, slots) of all tokens, row after row, by position."""
        return [
            (row, slice(slot, slot + tokens))
            for row in range(self._batch_size)
            for _, slot, tokens in self._held_runs(row)
        ]

    def _saved(self) -> tuple[str, ...]:
        """The tuples of `PER_ROW` that a state needs."""
        return ("_offsets",)

    def _saved_numbers(self, state: dict[str, Any], name: str) -> tuple[int, ...]:
        numbers = tuple(check_entry(state, name, (self._batch_size,), torch.int64).tolist())
        if min(numbers) < 0:
            raise ValueError(f"the state's {name} must be 0 or more, got {list(numbers)}")
        return numbers
