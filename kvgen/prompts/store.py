"""A store of prompts: the longest beginning of a new one that is already in a cache.

    store = PromptStore(lambda: MistralHFCache(model.config), memory_bytes=2 << 30, folder="prompts")
    found = store.find(tokens)
    cache = found.cache() if found else MistralHFCache(model.config)
    model.generate(ids, cache=cache, ...)       # runs what comes after found.tokens
    store.add(all_tokens_in_the_cache, cache)

Caches are of one row. An entry serves a prompt that goes on from it, and one that leaves it earlier if every layer can
take the difference back exactly: a ring that has wrapped can only a little, and then another entry may serve.
"""

from __future__ import annotations

import hashlib
import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgen.prompts.files import load, save


@dataclass(slots=True)
class _Entry:
    """The tokens of a cache, and the cache: in memory, or else in a file."""

    tokens: array[int]
    cache: Any
    file: Path | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """A beginning of a prompt that is computed: its first `tokens` tokens."""

    tokens: int
    _store: PromptStore
    _entry: _Entry

    def cache(self) -> Any:
        """A cache of these tokens, the caller's own.

        It shares the store's memory until it is first written: then it is copied, and the store's stays as it is. One
        that is in a file is read here.
        """
        return self._store.take(self._entry, self.tokens)


class PromptStore:
    """Safe with several threads. `make` gives an empty cache of one row, as those that are added.

    Over `memory_bytes` the least recently used caches go: to files in `folder`, or away without one.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        memory_bytes: int,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if memory_bytes < 0:
            raise ValueError(f"memory_bytes must be 0 or more, got {memory_bytes}")
        self.memory_bytes = memory_bytes
        self.saved_tokens = 0  # that callers did not have to run
        self._make, self._folder = make, None if folder is None else Path(folder)
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # the least recently used first
        self._lock = threading.RLock()

    def add(self, tokens: Sequence[int], cache: Any) -> None:
        """Keep a copy of a cache that holds exactly these tokens."""
        held = tuple(cache.offsets)
        if held != (len(tokens),):
            raise ValueError(
                f"the cache holds {list(held)} tokens a row, and {len(tokens)} tokens were given"
            )
        packed = array("q", tokens)
        copy = cache.clone()
        with self._lock:
            self._entries[packed.tobytes()] = _Entry(packed, copy, None, copy.nbytes)
            self._entries.move_to_end(packed.tobytes())
            self._make_room()

    def find(self, tokens: Sequence[int]) -> Found | None:
        """The longest usable beginning of `tokens`, at least one of which is left to run."""
        packed = array("q", tokens)
        with self._lock:
            best: tuple[int, bytes] | None = None
            for key, entry in self._entries.items():
                usable = self._usable(entry, packed, 0 if best is None else best[0])
                if best is None or usable > best[0]:
                    best = usable, key
            if best is None or best[0] == 0:
                return None
            self._entries.move_to_end(best[1])
            return Found(best[0], self, self._entries[best[1]])

    @property
    def nbytes(self) -> int:
        """Bytes of the caches in memory; one that is taken counts again only once it is written, and then not here."""
        with self._lock:
            return sum(entry.bytes for entry in self._entries.values() if entry.cache is not None)

    def __len__(self) -> int:
        return len(self._entries)

    def _usable(self, entry: _Entry, tokens: array[int], at_least: int) -> int:
        """How many of the tokens an entry can serve; 0 if no more than `at_least`."""
        most = min(_common(entry.tokens, tokens), len(tokens) - 1)
        if most <= at_least:
            return 0
        if most == len(entry.tokens):
            return most
        cache = self._in_memory(entry)
        for usable in range(most, at_least, -1):
            if cache.is_trimmable(len(entry.tokens) - usable):
                return usable
        return 0

    def take(self, entry: _Entry, tokens: int) -> Any:
        """What `Found.cache` gives."""
        with self._lock:
            cache = self._in_memory(entry).clone(lazy=True)
            self.saved_tokens += tokens
            self._make_room()
        if len(entry.tokens) > tokens:
            cache.trim(len(entry.tokens) - tokens)
        return cache

    def _in_memory(self, entry: _Entry) -> Any:
        if entry.cache is None and entry.file is not None:
            cache = self._make()
            load(cache, entry.file)
            entry.cache, entry.bytes = cache, cache.nbytes
        return entry.cache

    def _make_room(self) -> None:
        over = self.nbytes - self.memory_bytes
        for key in list(self._entries):
            if over <= 0:
                return
            entry = self._entries[key]
            if entry.cache is None:
                continue
            over -= entry.bytes
            if self._folder is None:
                del self._entries[key]
            else:
                self._to_file(entry, self._folder)

    def _to_file(self, entry: _Entry, folder: Path) -> None:
        if entry.file is None:
            name = hashlib.blake2b(entry.tokens.tobytes(), digest_size=16).hexdigest()
            path = folder / f"{name}.safetensors"
            save(entry.cache, path, {"tokens": entry.tokens.tolist()})
            entry.file = path
        entry.cache = None


def _common(a: array[int], b: array[int]) -> int:
    """How many tokens two prompts have in common from the first on: by halves, so that memory is compared."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
