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
import warnings
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgen.prompts.files import PromptFileError, load, save


@dataclass(slots=True)
class _Entry:
    """The tokens of a cache, and the cache: in memory, or else in a file."""

    tokens: array[int]
    cache: Any
    file: Path | None
    bytes: int
    device: Any  # for an HFCache, which is made without one


@dataclass(frozen=True, slots=True)
class Found:
    """A beginning of a prompt that is computed: its first `tokens` tokens."""

    tokens: int
    _store: PromptStore
    _entry: _Entry

    def cache(self) -> Any:
        """A cache of these tokens, the caller's own.

        It shares the store's memory until it is first written: then it is copied, and the store's stays as it is. One
        that is in a file is read here: OSError or PromptFileError, and the store forgets it, where that cannot be.
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
        if not hasattr(memory_bytes, "__index__") or memory_bytes < 0:
            raise ValueError(
                f"memory_bytes must be a whole number, 0 or more, got {memory_bytes!r}"
            )
        if not callable(make):
            raise ValueError(
                f"make must give a new empty cache when it is called, got a {type(make).__name__}: "
                "write lambda: ..."
            )
        self.memory_bytes = memory_bytes
        self.saved_tokens = 0  # that callers did not have to run
        self._make, self._folder = make, None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # the least recently used first
        self._lock = threading.RLock()

    def add(self, tokens: Sequence[int], cache: Any) -> None:
        """Keep a copy of a cache that holds exactly these tokens."""
        held = tuple(cache.offsets)
        if held != (len(tokens),):
            raise ValueError(
                f"the cache holds {list(held)} tokens a row, and {len(tokens)} tokens were given"
            )
        packed, copy = _packed(tokens), cache.clone()
        entry = _Entry(packed, copy, None, copy.nbytes, getattr(copy, "device", None))
        with self._lock:
            self._entries[packed.tobytes()] = entry
            self._entries.move_to_end(packed.tobytes())
            self._make_room()

    def find(self, tokens: Sequence[int]) -> Found | None:
        """The longest usable beginning of `tokens`, at least one of which is left to run."""
        packed = _packed(tokens)
        with self._lock:
            usable, key = self._longest(packed)
            if usable == 0:
                return None
            entry = self._entries[key]
            self._entries.move_to_end(key)
            self._make_room()
            return Found(usable, self, entry)

    @property
    def nbytes(self) -> int:
        """Bytes of the caches in memory; one that is taken counts again only once it is written, and then not here."""
        with self._lock:
            return sum(entry.bytes for entry in self._entries.values() if entry.cache is not None)

    def __len__(self) -> int:
        return len(self._entries)

    def _longest(self, tokens: array[int]) -> tuple[int, bytes]:
        """How many of the tokens an entry can serve, 0 if none can, and its key."""
        common = {key: _common(entry.tokens, tokens) for key, entry in self._entries.items()}
        best = 0, b""
        for key in sorted(common, key=common.__getitem__, reverse=True):
            if (most := min(common[key], len(tokens) - 1)) <= best[0]:
                break
            best = max(best, (self._usable(key, most, best[0]), key))
        return best

    def _usable(self, key: bytes, most: int, at_least: int) -> int:
        """How many tokens, of `most` that they have in common, an entry can serve; 0 if not more than `at_least`.

        One whose file is gone or damaged goes, with a warning.
        """
        entry = self._entries[key]
        if most == len(entry.tokens):
            return most
        try:
            cache = self._in_memory(entry)
        except (OSError, PromptFileError) as error:
            del self._entries[key]
            warnings.warn(f"a prompt left the store: {error}", RuntimeWarning, stacklevel=4)
            return 0
        for usable in range(most, at_least, -1):
            if cache.is_trimmable(len(entry.tokens) - usable):
                return usable
        return 0

    def take(self, entry: _Entry, tokens: int) -> Any:
        """What `Found.cache` gives."""
        with self._lock:
            try:
                cache = self._in_memory(entry).clone(lazy=True)
            except (OSError, PromptFileError):
                self._entries.pop(entry.tokens.tobytes(), None)
                raise
            self.saved_tokens += tokens
            self._make_room()
        if len(entry.tokens) > tokens:
            cache.trim(len(entry.tokens) - tokens)
        return cache

    def _in_memory(self, entry: _Entry) -> Any:
        if entry.cache is None and entry.file is not None:
            cache = self._make()
            placed = getattr(cache, "device", None) is not None
            load(cache, entry.file, None if placed else entry.device)
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


def _packed(tokens: Sequence[int]) -> array[int]:
    try:
        return array("q", tokens)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"tokens must be whole numbers, one after another: {error}") from error


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
