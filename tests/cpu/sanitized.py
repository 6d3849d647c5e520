"""Emitted policies beside the executable specification, in a process whose kernels are built with sanitizers:

    python -m tests.cpu.sanitized SECONDS FILE POLICY DTYPE...      as generated/ has it: gemma3 Local bf16 f16 f32
    python -m tests.cpu.sanitized SECONDS TEXT Local DTYPE...       a policy of its own

test_source.py starts it and says how it is built. A report of a sanitizer ends the process, a wrong answer raises.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

from kvgen import model
from kvgen.ir import CachePolicy, DType
from kvgen.loading import load_text
from kvgen.naming import class_name
from kvgen.pipeline import check_text
from kvgen.verify import session as sessions
from kvgen.verify.calls import Decode, Move, Trim, Window, smallest_moves
from kvgen.verify.clock import Clock, OutOfTime
from kvgen.verify.search import Random
from kvgen.verify.subject import MUCH, Subject, spelt

ROOT = Path(__file__).parents[2]
MOVES = 12  # of a random sequence
LONG = 1100  # tokens: more than one part of a decode step, or of a window, has


def subject_of(file: str, name: str, dtype: str) -> Subject:
    """All heads and numbers as declared; keys and values stored as `dtype`."""
    text, package = file, None
    if not file.startswith("kvgen"):
        text = (ROOT / "policies" / f"{file}.kv").read_text("utf-8")
        package = import_module(f"generated.{file}")
    program = check_text(text, "sanitized").program
    assert program is not None
    policy = replace(program.policy(name), dtype=DType(dtype))
    emitted = getattr(package or load_text(text, "sanitized"), f"{class_name(name)}Cache")
    stored = getattr(torch, policy.dtype.torch_name)
    return Subject(policy, "as declared", spelt(policy), partial(emitted, dtype=stored), "cpu")


def every_kind(policy: CachePolicy, rows: int) -> Iterator[Move]:
    """Of calls: on a long history, a draft of which most is taken back, and both sides of every edge."""
    back = policy.trim.bypass_tokens or 3
    yield Window(LONG), Decode(), Window(17)
    yield Window(back + 1), Trim(back, bypass=policy.trim.bypass_tokens > 0)
    yield from smallest_moves(policy, (0,) * rows)


def run(subject: Subject, seconds: float) -> str:
    """All kinds of calls, then random sequences: one at least."""
    reach = model.reach(subject.policy.retention) or 0
    fixed, attended = subject.session(2 if reach <= MUCH else 1), sessions.ATTENDED
    sessions.ATTENDED = 0.0  # wide windows are stored only: every later call would ask them again
    for move in every_kind(subject.policy, fixed.rows):
        for call in move:
            fixed.do(call)
    sessions.ATTENDED = attended
    if reach <= MUCH:
        fixed.do(Window(max(reach + 9, 130)))  # more than the ring, or than what shares panels
    search = Random(subject, Clock(seconds), MOVES)
    search.widths = [width for width in search.widths if width <= sessions.WIDE]
    try:
        search.run(sys.maxsize)
    except OutOfTime:
        assert search.sequences
    return f"{1 + search.sequences} sequences, {fixed.reads + search.reads} reads"


if __name__ == "__main__":
    limit, file, name, *dtypes = sys.argv[1:]
    os.environ.pop("LD_PRELOAD", None)  # it is for this process, not for the compilers it starts
    torch.set_num_threads(2)
    for dtype in dtypes:
        subject = subject_of(file, name, dtype)
        print(dtype, run(subject, float(limit)), flush=True)
