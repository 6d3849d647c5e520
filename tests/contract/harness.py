"""Caches from clause text, and a `Pair`: a generated cache and the judge, driven together and compared at every step.

`KVGEN_TEST_BACKENDS=torch,cpu` chooses the backends, `KVGEN_TEST_DEVICE=cuda` where their tensors live.
"""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
import math
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kvgen.emit import emit
from kvgen.ir import CachePolicy, Program
from kvgen.pipeline import check_text
from kvgen.plan import plan
from kvgen.verify.float64 import Store
from kvgen.verify.reference import ReferenceCache, RefusedError

BACKENDS = tuple(os.environ.get("KVGEN_TEST_BACKENDS", "torch").split(","))
DEVICE = os.environ.get("KVGEN_TEST_DEVICE", "cpu")
FULL = os.environ.get("KVGEN_TEST_FULL", "") not in ("", "0")  # everything, not a chosen part
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TOLERANCE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}  # contract section 3
DEFAULTS = {"heads": "query 2 kv 1", "dim": "8", "dtype": "f32"}
NAN = math.nan


# -- compiling


def policy_text(name: str, clauses: str) -> str:
    """A policy of these clauses, with the heads, dim and dtype of cases.json where they name none."""
    missing = [f"{word} {rest}" for word, rest in DEFAULTS.items() if word not in clauses.split()]
    return f"policy {name} {{ {' '.join(missing)} {clauses} }}\n"


def program_text(policies: dict[str, str], models: str = "") -> str:
    return "kvgen 1\n" + "".join(policy_text(*item) for item in policies.items()) + models


_stems = (f"kvgen_contract_{i}" for i in itertools.count())


@functools.cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="kvgen-contract-")
    _folder.keep = folder  # until the interpreter ends
    sys.path.insert(0, folder.name)
    return Path(folder.name)


def import_files(files: dict[str, str], stem: str) -> ModuleType:
    """Emitted files, written to a folder of this session and imported."""
    for path, text in files.items():
        target = _folder() / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return importlib.import_module(stem)


def compile_files(text: str, backends: tuple[str, ...] = BACKENDS) -> tuple[str, dict[str, str]]:
    """(stem, {relative path: text}); fails with the diagnostics of a text that does not compile."""
    stem = next(_stems)
    checked = check_text(text, f"{stem}.kv")
    assert checked.program is not None, checked.diagnostics
    emitted = tuple(dict.fromkeys(("torch", *backends)))
    return stem, dict(emit(plan(checked.program, emitted)))


@functools.cache
def package(text: str) -> ModuleType:
    stem, files = compile_files(text)
    return import_files(files, stem)


@functools.cache
def program(text: str) -> Program:
    checked = check_text(text, "contract.kv")
    assert checked.program is not None, checked.diagnostics
    return checked.program


@functools.cache
def policy_of(clauses: str) -> CachePolicy:
    return program(program_text({"Tested": clauses})).policy("Tested")


def cache_class(clauses: str) -> type:
    return package(program_text({"Tested": clauses})).TestedCache


def make_cache(clauses: str, rows: int = 1, *, backend: str = "torch", **options):
    """A cache of a policy with these clauses."""
    return cache_class(clauses)(rows, backend=backend, device=DEVICE, **options)


# -- comparing


def tolerance(dtype: torch.dtype, expected: torch.Tensor) -> float:
    finite = expected[expected.isfinite()]
    return TOLERANCE[dtype] * max(1.0, finite.abs().max().item() if finite.numel() else 0.0)


def assert_close(
    actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, what: str = "output"
) -> None:
    """Within the contract's accuracy of float64; infinities and shapes must be the same."""
    assert actual.shape == expected.shape, (
        f"{what}: {list(actual.shape)}, expected {list(expected.shape)}"
    )
    actual = actual.double()
    same = (actual == expected) | ((actual - expected).abs() <= tolerance(dtype, expected))
    if not same.all():
        at = (~same).nonzero()[0].tolist()
        raise AssertionError(
            f"{what} differs at {at}: {actual[tuple(at)]}, expected {expected[tuple(at)]}"
        )


def refused(call, *errors: type[Exception]):
    """Run a call that must be refused with one of these errors and say why."""
    with pytest.raises(errors or (ValueError, RuntimeError)) as caught:
        call()
    assert not isinstance(caught.value, (NotImplementedError, RecursionError)), (
        "a refusal is no accident"
    )
    assert str(caught.value).strip(), "a refusal says why"
    return caught.value


def storage_tensors(thing) -> list[torch.Tensor]:
    """Every tensor that an object of a generated package holds, however deep."""
    found, seen, todo = [], set(), [thing]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, (list, tuple, set)):
            todo += value
        elif type(value).__module__.startswith("kvgen_contract"):
            todo += getattr(value, "__dict__", {}).values()
            slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
            todo += [
                getattr(value, name)
                for name in slots
                if name != "__weakref__" and hasattr(value, name)
            ]
    return found


def plane_addresses(cache, rows: int, heads: int) -> set[int]:
    """Where the planes of keys and values lie."""
    return {
        tensor.data_ptr()
        for tensor in storage_tensors(cache)
        if tensor.dim() == 4 and tensor.shape[:2] == (rows, heads) and tensor.shape[2] > 1
    }


# -- a cache and the judge, together


class Held:
    """A read that is kept, with the query and the answer it must go on giving."""

    def __init__(self, read, query, options, expected, dtype):
        self.read, self.query, self.options, self.expected, self.dtype = (
            read,
            query,
            options,
            expected,
            dtype,
        )

    def check(self) -> None:
        out, lse = self.read.attend(self.query, return_lse=True, **self.options)
        assert_close(out, self.expected[0], self.dtype)
        assert_close(lse, self.expected[1], self.dtype, "log-sum-exp")


class Pair:
    """Every call goes to both. Padding of keys, values and queries is NaN. Appends attend at once and keep the read."""

    def __init__(
        self,
        clauses: str,
        rows: int = 1,
        *,
        backend="torch",
        dtype=None,
        seed=0,
        capacity=None,
        hold=8,
        cls=None,
    ):
        self.policy = policy_of(clauses)
        self.dtype = DTYPES[dtype or self.policy.dtype.value]
        options = {} if capacity is None else {"capacity": capacity}
        if dtype is not None:
            options["dtype"] = self.dtype
        self.backend, self.options = backend, options
        self.cls = cls or cache_class(clauses)
        self.cache = self.cls(rows, backend=backend, device=DEVICE, **options)
        self.reference = ReferenceCache(self.policy, rows, capacity)
        self.random = torch.Generator().manual_seed(seed)
        self.hold, self.held = hold, []
        self.store = Store.of(self.policy.heads)

    # -- appends

    def decode(self, query_dtype=None) -> Held:
        return self._append("append_decode", 1, query_dtype)

    def window(self, width: int, query_dtype=None) -> Held:
        return self._append("append_window", width, query_dtype)

    def prefill(self, lengths, left=None, splits=None) -> list[Held]:
        left_padding = [0] * len(lengths) if left is None else left
        splits = splits or [max(a + b for a, b in zip(lengths, left_padding, strict=True))]
        self.call("prepare_prefill", list(lengths), left)
        held = [self.window(width) for width in splits]
        self.call("finalize_prefill")
        return held

    def random_tensor(self, *shape, dtype=None) -> torch.Tensor:
        return torch.randn(shape, generator=self.random).to(dtype or self.dtype).to(DEVICE)

    def tokens(self, width: int):
        heads = self.policy.heads
        shape = self.reference.batch_size, heads.kv, width
        return self.random_tensor(*shape, heads.key_dim), self.random_tensor(
            *shape, heads.value_dim
        )

    def _append(self, name: str, width: int, query_dtype) -> Held | None:
        k, v = self.tokens(width)
        columns = self.store.add(k, v)
        try:
            judged = getattr(self.reference, name)(columns)
        except (ValueError, RuntimeError) as error:
            self._refused(lambda: getattr(self.cache, name)(k, v), error)
            return None
        padding = torch.tensor(
            [[p is None for p in row] for row in judged.queries], dtype=torch.bool, device=DEVICE
        )
        hide = padding.reshape(k.shape[0], 1, width, 1)
        k, v = k.masked_fill(hide, NAN), v.masked_fill(hide, NAN)
        read = getattr(self.cache, name)(k, v)
        held = self._judge(read, judged, hide, query_dtype or self.dtype)
        k.fill_(NAN), v.fill_(NAN)  # borrowed until the append returned
        held.check()
        self.held = [*self.held, held][-self.hold :] if self.hold else []
        self.check()
        return held

    def answer(self, judged, q, **options):
        """The judge's float64 (out, lse)."""
        return judged.attend(q, self.store.keys, self.store.values, **options)

    def _judge(self, read, judged, hide, query_dtype) -> Held:
        heads, (rows, width) = self.policy.heads, (len(judged.queries), len(judged.queries[0]))
        q = self.random_tensor(rows, heads.query, width, heads.key_dim, dtype=query_dtype)
        options = {}
        if self.policy.scores.sink_logits:
            options["sink_logits"] = self.random_tensor(heads.query)
        expected = self.answer(judged, q, **options)
        return Held(read, q.masked_fill(hide, NAN), options, expected, self.dtype)

    # -- other calls

    def call(self, name: str, *arguments, **options):
        """The same call to both, in place; both answer alike or refuse alike, and then nothing has changed."""
        try:
            expected = getattr(self.reference, name)(*arguments, **options)
        except (ValueError, RuntimeError) as error:
            self._refused(
                lambda: getattr(self.cache, name)(*copy.deepcopy(arguments), **options), error
            )
            return None
        answer = getattr(self.cache, name)(*copy.deepcopy(arguments), **options)
        assert answer == expected or expected is None, (
            f"{name}{arguments} is {answer}, expected {expected}"
        )
        self.check()
        return answer

    def trim(self, n, bypass=False) -> None:
        self.call("trim", n, bypass=bypass)

    def _refused(self, call, error: Exception) -> None:
        kinds = (ValueError, RuntimeError) if isinstance(error, RefusedError) else (type(error),)
        refused(call, *kinds)
        self.check()

    def branch(self, cache=None, reference=None) -> Pair:
        """Another pair that shares the random numbers, not the reads."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, held=[])
        other.cache = self.cache.clone() if cache is None else cache
        other.reference = self.reference.clone() if reference is None else reference
        return other

    def extract(self, row: int) -> Pair:
        return self.branch(self.cache.extract_row(row), self.reference.extract_row(row))

    def merge(self, *others: Pair) -> Pair:
        pairs = [self, *others]
        return self.branch(
            type(self.cache).merge_rows([pair.cache for pair in pairs]),
            ReferenceCache.merge_rows([pair.reference for pair in pairs]),
        )

    def save_load(self) -> Pair:
        """A fresh cache with this one's state."""
        cache = self.cls(
            self.reference.batch_size, backend=self.backend, device=DEVICE, **self.options
        )
        cache.load_state_dict(self.cache.state_dict())
        reference = ReferenceCache(self.policy, self.reference.batch_size, self.reference.slots)
        reference.load(self.reference.saved())
        return self.branch(cache, reference)

    # -- what must hold at every moment

    def check(self) -> None:
        cache, reference = self.cache, self.reference
        assert cache.offsets == reference.offsets
        assert cache.offset == reference.offset and cache.batch_size == reference.batch_size
        assert cache.positions(2).tolist() == reference.positions(2)
        for n in self._questions():
            assert cache.is_trimmable(n) == reference.is_trimmable(n), (
                f"is_trimmable({n}) at {reference.rows}"
            )

    def _questions(self) -> list:
        reach = 4 if self.reference.slots is None else 2
        offsets = self.reference.offsets
        return [*range(reach), max(offsets), max(offsets) + 1, list(offsets)]

    def recheck(self) -> None:
        """Held reads give the answers they gave."""
        for held in self.held:
            held.check()

    def probe(self) -> None:
        """What the next reads are, without changing anything."""
        if self.reference.prefill is None:
            self.branch().decode()
            self.branch().window(2)
