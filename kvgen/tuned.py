"""The table that `kvgen tune` writes beside a policy file and `kvgen compile` reads: what was measured, on what.

    {
      "kvgen_tune": 1,
      "codegen": 1,
      "policies": {
        "Local": {
          "meaning": "heads query 8 kv 4, dim 256, bf16, window 512, storage ring slack 7",
          "targets": {
            "sm_90": {
              "device": "NVIDIA H100 80GB HBM3",
              "torch": "2.14.1",
              "triton": "3.8.0",
              "kernels": {
                "decode": {
                  "choice": {"rows": 64, "keys": 32, "warps": 4, "stages": 3, "splits": 4},
                  "microseconds": 3.41,
                  "planned_microseconds": 3.62
                }
              }
            }
          }
        }
      }
    }

`meaning` and `codegen` say what was measured: an entry of another policy text or of older templates is not used, and a
warning says so. So are those that name what there is not. Nothing here depends on clock, folder or locale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from kvgen import model
from kvgen.backends import triton_choices as choices
from kvgen.diagnostics import Diagnostic, Label, Problems
from kvgen.header import CODEGEN
from kvgen.ir import CachePolicy, Contiguous, Fixed, Program, Ring
from kvgen.source import SourceFile, Span

FORMAT = 1
SUFFIX = ".tune.json"
AGAIN = "run `kvgen tune` again on that device, or take the entry out"


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a policy, measured. `choice`: the numbers of `choices.NUMBERS`, in their order."""

    policy: str
    target: str
    kernel: str
    choice: tuple[int, ...]
    microseconds: float
    planned_microseconds: float
    device: str
    torch: str
    triton: str

    @property
    def why(self) -> str:
        planned = f"{self.planned_microseconds:g} us with what would be planned"
        return f"measured on {self.device} with triton {self.triton}: {self.microseconds:g} us, {planned}"


Table = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table as it lies on disk."""

    name: str
    data: bytes


def meaning(policy: CachePolicy) -> str:
    """What of a policy its kernels depend on, in the language's words."""
    heads, scores, retention = policy.heads, policy.scores, policy.retention
    dim = (
        f"{heads.key_dim}"
        if heads.key_dim == heads.value_dim
        else (f"key {heads.key_dim} value {heads.value_dim}")
    )
    return ", ".join(
        (
            f"heads query {heads.query} kv {heads.kv}",
            f"dim {dim}",
            policy.dtype.value,
            *(() if scores.softcap is None else (f"softcap {scores.softcap:g}",)),
            *(("sink_logits",) if scores.sink_logits else ()),
            *(() if retention.window_tokens is None else (f"window {retention.window_tokens}",)),
            *((f"sinks {s}",) if (s := model.effective_sinks(retention)) else ()),
            *(() if retention.chunk_tokens is None else (f"chunk {retention.chunk_tokens}",)),
            _storage(policy),
        )
    )


def _storage(policy: CachePolicy) -> str:
    match policy.storage:
        case Ring(slack):
            return f"storage ring slack {slack}"
        case Fixed(None):
            return "storage fixed"
        case Fixed(slots):
            return f"storage fixed {slots}"
        case Contiguous():
            return "storage contiguous"
        case _:
            return "stateless"


# -- writing


def dump(table: Table, program: Program) -> str:
    """The file's text: entries in the order of their names."""
    policies: dict[str, Any] = {}
    for entry in sorted(table, key=lambda one: (one.policy, one.target, one.kernel)):
        empty: dict[str, Any] = {"meaning": meaning(program.policy(entry.policy)), "targets": {}}
        targets = policies.setdefault(entry.policy, empty)["targets"]
        device = {"device": entry.device, "torch": entry.torch, "triton": entry.triton}
        target = targets.setdefault(entry.target, {**device, "kernels": {}})
        target["kernels"][entry.kernel] = {
            "choice": dict(zip(choices.NUMBERS[entry.kernel], entry.choice, strict=True)),
            "microseconds": entry.microseconds,
            "planned_microseconds": entry.planned_microseconds,
        }
    whole = {"kvgen_tune": FORMAT, "codegen": CODEGEN, "policies": policies}
    return json.dumps(whole, indent=2) + "\n"


# -- reading


def read(file: TableFile, program: Program) -> tuple[Table, tuple[Diagnostic, ...]]:
    """The entries that fit the program, and a warning for each that does not; it is planned as if it were not there."""
    source = SourceFile.of(file.data.decode("utf-8", "replace"), file.name)
    problems = Problems(source)
    whole = _whole(source, problems)
    if whole is None:
        return (), problems.sorted()
    reader = _Reader(source, problems, program)
    table = tuple(reader.entries(whole))
    return table, problems.sorted()


def _whole(source: SourceFile, problems: Problems) -> dict[str, Any] | None:
    """The file's object, None if it is no table of this kvgen."""
    try:
        whole: Any = json.loads(source.text)
    except (ValueError, RecursionError) as error:
        at = min(getattr(error, "pos", 0), max(len(source.text) - 1, 0))
        what = re.sub(r"( starting)? at$", "", getattr(error, "msg", str(error)))
        _unreadable(problems, Span(at, at + 1), f"no JSON: {what}")
        return None
    whole = _object(whole)
    if whole.get("kvgen_tune") != FORMAT:
        _unreadable(problems, Span(0, 1), f"it does not begin with `kvgen_tune` {FORMAT}")
        return None
    if not _object(whole.get("policies")):
        _unreadable(problems, Span(0, 1), "it has no `policies`")
        return None
    return whole


def _unreadable(problems: Problems, span: Span, why: str) -> None:
    problems.add(
        "KV911",
        "a tuned table that cannot be read",
        Label(span, why),
        "write it again with `kvgen tune`, or remove the file; until then everything is planned",
    )


class _Reader:
    def __init__(self, source: SourceFile, problems: Problems, program: Program) -> None:
        self.source, self.problems, self.program = source, problems, program

    def entries(self, whole: dict[str, Any]) -> Iterator[Entry]:
        if whole.get("codegen") != CODEGEN:
            why = f"measured with templates {whole.get('codegen')}, these are {CODEGEN}"
            self._warn(("codegen",), why, "run `kvgen tune` again on its devices")
            return
        known = {policy.name: policy for policy in self.program.policies}
        for name, value in whole["policies"].items():
            told = _object(value)
            if name not in known:
                why = f"{self.program.stem}.kv has no such policy"
                self._warn((name,), why, "rename the entry as the policy was, or take it out")
            elif told.get("meaning") != meaning(known[name]):
                self._warn((name, "meaning"), f"the policy is now: {meaning(known[name])}", AGAIN)
            else:
                yield from self._targets(known[name], told.get("targets"))

    def _targets(self, policy: CachePolicy, targets: Any) -> Iterator[Entry]:
        if not _object(targets):
            self._warn((policy.name,), "it has no `targets`", AGAIN)
        for name, value in _object(targets).items():
            path, told = (policy.name, name), _object(value)
            if name not in choices.TARGETS:
                there = ", ".join(choices.TARGETS)
                self._warn(path, f"kvgen plans for no such target: there are {there}", AGAIN)
            elif not _complete(told):
                self._warn(path, "device, torch, triton or kernels are missing", AGAIN)
            else:
                yield from self._kernels(policy, name, told)

    def _kernels(self, policy: CachePolicy, target: str, told: dict[str, Any]) -> Iterator[Entry]:
        device = told["device"], told["torch"], told["triton"]
        for kernel, one in told["kernels"].items():
            path = policy.name, target, kernel
            if kernel not in choices.kernels(policy):
                tuned = ", ".join(choices.kernels(policy))
                self._warn(
                    path, f"no kernel of this policy that is tuned: those are {tuned}", AGAIN
                )
                continue
            try:
                choice = tuple(one["choice"][number] for number in choices.NUMBERS[kernel])
                times = float(one["microseconds"]), float(one["planned_microseconds"])
            except (KeyError, TypeError, ValueError):
                numbers = ", ".join(choices.NUMBERS[kernel])
                self._warn(path, f"it needs times, and a choice of {numbers}", AGAIN)
                continue
            if why := choices.objection(policy, target, kernel, choice):
                self._warn(path, why, AGAIN)
                continue
            yield Entry(policy.name, target, kernel, choice, *times, *device)

    def _warn(self, path: tuple[str, ...], why: str, help: str) -> None:
        what = "a tuned entry that is not used"
        self.problems.add(
            "KV912", what, Label(self._place(path), why), f"{help}; it is planned anew"
        )

    def _place(self, path: tuple[str, ...]) -> Span:
        """Of the last key of a path: the first one of its name after those before it."""
        start = end = 0
        for name in path:
            key = json.dumps(name)
            found = self.source.text.find(f"{key}:", end)
            if found >= 0:
                start, end = found, found + len(key)
        return Span(start, max(end, start + 1))


def _complete(told: dict[str, Any]) -> bool:
    words = ("device", "torch", "triton")
    return all(isinstance(told.get(word), str) for word in words) and bool(
        _object(told.get("kernels"))
    )


def _object(value: Any) -> dict[str, Any]:
    """A JSON object; {} for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
