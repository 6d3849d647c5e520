# pyright: basic
"""A failure as a short Python script that shows it. The judge says what the last read should have seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvgen.ir import CachePolicy
from kvgen.naming import class_name
from kvgen.verify.calls import (
    Call,
    Clone,
    Decode,
    Extract,
    Finalize,
    Merge,
    Prepare,
    Reload,
    Reset,
    Rows,
    Trim,
    Window,
)
from kvgen.verify.reference import ReferenceCache, ReferenceRead
from kvgen.verify.search import Failure
from kvgen.verify.tolerance import relative

_HEAD = '''"""{words}

{name}, {scale}. Written by `kvgen verify`.
"""

import torch

from kvgen.loading import load_text

POLICY = """\\
{text}"""

Cache = load_text(POLICY, "small").{cls}
OPTIONS = {options}
cache = Cache({rows}, **OPTIONS)
torch.manual_seed(0)


def tokens(rows, columns):
    k = torch.randn(rows, {kv}, columns, {key_dim}).to(cache.device, cache.dtype)
    return k, torch.randn(rows, {kv}, columns, {value_dim}).to(cache.device, cache.dtype)


def append(name, k, v):
    k, v = k.clone(), v.clone()
    read = getattr(cache, name)(k, v)
    k.fill_(torch.nan), v.fill_(torch.nan)  # they were borrowed until the append returned
    return read


'''


def script(failure: Failure, name: str) -> str:
    return "\n".join(_Script(failure, name).lines()) + "\n"


class _Script:
    """Walks the calls with a judge whose tokens are the names that they have in the script."""

    def __init__(self, failure: Failure, name: str) -> None:
        self.failure, self.name = failure, name
        self.subject, self.policy = failure.subject, failure.subject.policy
        self.judge = self.new_judge(failure.rows)
        self.reads: dict[int, ReferenceRead] = {}
        self.merges = 0

    def new_judge(self, rows: int) -> ReferenceCache:
        return ReferenceCache(self.policy, rows, self.subject.capacity)

    def lines(self) -> Iterator[str]:
        yield self.head()
        for call in self.failure.calls[:-1]:
            yield from self.tried(call)
        yield from self.last(self.failure.calls[-1])

    def head(self) -> str:
        heads, subject = self.policy.heads, self.subject
        return (
            _HEAD.format(
                words=self.failure.wrong.words,
                name=self.name,
                scale=subject.scale,
                text=subject.text,
                cls=f"{class_name(self.policy.name)}Cache",
                rows=self.failure.rows,
                options=self.options(),
                kv=heads.kv,
                key_dim=heads.key_dim,
                value_dim=heads.value_dim,
            ).rstrip("\n")
            + "\n\n"
        )

    def options(self) -> str:
        """Of the constructor, as a dictionary."""
        subject = self.subject
        capacity = "" if subject.capacity is None else f', "capacity": {subject.capacity}'
        return f'{{"backend": "{subject.backend}", "device": "{subject.device}"{capacity}}}'

    # -- the calls

    def tried(self, call: Call) -> Iterator[str]:
        """A call, and that it is refused if it is."""
        lines = list(self.spelt(call))
        if self.done(call):
            yield from lines
            return
        yield "try:"
        yield from (f"    {line}" for line in lines)
        yield "except (ValueError, RuntimeError):"
        yield "    pass  # refused, as it must be"

    def last(self, call: Call) -> Iterator[str]:
        wrong = self.failure.wrong
        if wrong.kind == "accepted":
            yield "try:"
            yield from (f"    {line}" for line in self.spelt(call))
            yield "except (ValueError, RuntimeError):"
            yield "    pass"
            yield "else:"
            yield '    raise AssertionError("this call must be refused")'
            return
        yield from self.tried(call)
        match wrong.kind:
            case "answer":
                yield from self.answer(self.reads[wrong.read])
            case "is_trimmable":
                n, expected = wrong.question
                yield f"assert cache.is_trimmable({n}) is {expected}"
            case "state":
                what, expected = wrong.question
                value = "cache.positions(2).tolist()" if "positions" in what else f"cache.{what}"
                yield f"assert {value} == {expected}, {value}"
            case _:
                pass  # the call itself raises

    def spelt(self, call: Call) -> Iterator[str]:
        match call:
            case Decode() | Window():
                yield from self.append(call)
            case Prepare(lengths, left):
                padding = f", {list(left)}" if any(left) else ""
                yield f"cache.prepare_prefill({list(lengths)}{padding})"
            case Finalize():
                yield "cache.finalize_prefill()"
            case Trim(n, bypass):
                count = list(n) if isinstance(n, tuple) else n
                yield f"cache.trim({count}{', bypass=True' if bypass else ''})"
            case Rows(rows):
                yield f"cache.filter_rows({list(rows)})"
            case Reset():
                yield "cache.reset()"
            case Extract(row):
                yield f"cache = cache.extract_row({row})"
            case Clone():
                yield "cache = cache.clone()"
            case Merge():
                yield from self.merge()
            case Reload():
                yield "saved, cache = cache.state_dict(), Cache(cache.batch_size, **OPTIONS)"
                yield "cache.load_state_dict(saved)"

    def append(self, call: Decode | Window) -> Iterator[str]:
        number, width = len(self.reads) + 1, call.width if isinstance(call, Window) else 1
        name = "append_window" if isinstance(call, Window) else "append_decode"
        yield f"k{number}, v{number} = tokens({self.judge.batch_size}, {width})"
        for row, (left, tokens) in enumerate(self.judge.coming(width)):
            hidden = (
                [*range(left), *range(left + tokens, width)] if isinstance(call, Window) else []
            )
            if hidden:
                at = f"[{row}, :, {hidden}]"
                yield f"k{number}{at} = v{number}{at} = torch.nan  # padding"
        yield f'read{number} = append("{name}", k{number}, v{number})'

    def merge(self) -> Iterator[str]:
        number = self.merges + 1
        yield "spare = Cache(1, **OPTIONS)"
        yield f"ks{number}, vs{number} = tokens(1, {self.subject.merged_tokens})"
        yield f"spare.append_window(ks{number}, vs{number})"
        yield "cache = Cache.merge_rows([cache, spare])"

    # -- the judge's part

    def done(self, call: Call) -> bool:
        try:
            self.judge = self.judged(call)
        except (ValueError, RuntimeError):
            return False
        return True

    def judged(self, call: Call) -> ReferenceCache:
        judge = self.judge
        match call:
            case Decode() | Window():
                width = call.width if isinstance(call, Window) else 1
                name = "append_window" if isinstance(call, Window) else "append_decode"
                number = len(self.reads) + 1
                columns = [
                    [f"{{}}{number}[{row}, :, {i}]" for i in range(width)]
                    for row in range(judge.batch_size)
                ]
                self.reads[number] = getattr(judge, name)(columns)
            case Prepare(lengths, left):
                judge.prepare_prefill(list(lengths), list(left) if any(left) else None)
            case Finalize():
                judge.finalize_prefill()
            case Trim(n, bypass):
                judge.trim(list(n) if isinstance(n, tuple) else n, bypass=bypass)
            case Rows(rows):
                judge.filter_rows(list(rows))
            case Reset():
                judge.reset()
            case Extract(row):
                return judge.extract_row(row)
            case Clone():
                return judge.clone()
            case Merge():
                spare = self.new_judge(1)
                number = self.merges + 1
                spare.append_window(
                    [[f"{{}}s{number}[0, :, {i}]" for i in range(self.subject.merged_tokens)]]
                )
                merged = ReferenceCache.merge_rows([judge, spare])
                self.merges = number
                return merged
            case Reload():
                other = self.new_judge(judge.batch_size)
                other.load(judge.saved())
                return other
        return judge

    # -- the check of an answer

    def answer(self, read: ReferenceRead) -> Iterator[str]:
        wrong, heads = self.failure.wrong, self.policy.heads
        row, column, width = wrong.row, wrong.column, len(read.queries[0])
        sinks = self.policy.scores.sink_logits
        yield f"q = torch.randn({len(read.queries)}, {heads.query}, {width}, {heads.key_dim}).to(cache.device, cache.dtype)"
        if sinks:
            yield f"sink_logits = torch.randn({heads.query}).to(cache.device)"
        options = ", sink_logits=sink_logits" if sinks else ""
        yield f"out, lse = read{wrong.read}.attend(q, return_lse=True{options})"
        yield f"out, lse = out[{row}, :, {column}].double(), lse[{row}, :, {column}].double()"
        yield ""
        seen = read.sees()[row][column]
        if seen is None:
            yield f"# row {row}, column {column} is padding"
            yield "assert (out == 0).all() and (lse == -torch.inf).all(), (out, lse)"
            return
        yield f"# what row {row}, column {column} sees, position {read.queries[row][column]}:"
        for name in "kv":
            yield f"{name} = torch.stack([{', '.join(token.format(name) for token in seen)}], 1).double()"
        yield from _softmax(self.policy, row, column)
        yield 'print("is      ", out[0], lse[0])'
        yield 'print("expected", expected[0], expected_lse[0])'
        close = f"atol={relative(self.policy.dtype.torch_name)} * max(1, expected.abs().max().item()), rtol=0"
        yield f"torch.testing.assert_close(out, expected, {close})"
        yield f"torch.testing.assert_close(lse, expected_lse, {close.replace('expected.', 'expected_lse.')})"


def _softmax(policy: CachePolicy, row: int, column: int) -> Iterator[str]:
    scores, group = policy.scores, policy.heads.group
    if group > 1:
        yield f"k, v = k.repeat_interleave({group}, 0), v.repeat_interleave({group}, 0)"
    scale: Any = f"{policy.heads.key_dim}**-0.5" if scores.scale is None else scores.scale
    yield f"scores = (k @ q[{row}, :, {column}, :, None].double())[..., 0] * {scale}"
    if scores.softcap is not None:
        yield f"scores = {scores.softcap} * torch.tanh(scores / {scores.softcap})"
    if scores.sink_logits:
        yield "scores = torch.cat([sink_logits[:, None].double(), scores], 1)"
    yield "expected_lse = scores.logsumexp(1)"
    weights = "(scores - expected_lse[:, None]).exp()"
    yield f"weights = {weights}{'[:, 1:]' if scores.sink_logits else ''}"
    yield "expected = (weights[:, None] @ v)[:, 0]"
