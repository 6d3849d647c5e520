"""Syntax to IR: each clause alone, then the rules between clauses, then the models. Reports every problem, not the first."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kvgen import between, layers
from kvgen.clauses import POLICY
from kvgen.clauses.chunk import Chunk
from kvgen.clauses.dim import Dim
from kvgen.clauses.heads import Heads
from kvgen.clauses.numbers import integer
from kvgen.clauses.scale import Scale
from kvgen.clauses.sink_logits import SinkLogits
from kvgen.clauses.sinks import Sinks
from kvgen.clauses.softcap import Softcap
from kvgen.clauses.stateless import Stateless
from kvgen.clauses.storage import Storage
from kvgen.clauses.window import Window
from kvgen.diagnostics import Diagnostic, Edit, Fix, Label, Problems, shown
from kvgen.fmt import Formatted
from kvgen.inherit import Names, Resolved, resolve
from kvgen.ir import (
    CachePolicy,
    Contiguous,
    DType,
    Entry,
    Fixed,
    Model,
    Origin,
    Padding,
    Program,
    Retention,
    Ring,
    Scores,
    Share,
    Trim,
)
from kvgen.ir import Heads as IrHeads
from kvgen.ir import Stateless as IrStateless
from kvgen.ir import Storage as IrStorage
from kvgen.source import SourceFile, Span
from kvgen.syntax import Clause, Declaration, File, Word, clause_text

VERSION = 1
_LONGEST_NAME = 64


def analyse(
    source: SourceFile, file: File, formatted: Formatted
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """The file's meaning, which holds only as far as no diagnostic is an error."""
    problems = Problems(source)
    declarations = file.declarations
    _check_version(source, file, problems)
    _check_names(declarations, problems)
    names = Names(declarations)
    resolved = resolve(declarations, names, problems)
    origins = _Origins(formatted.lines)
    policies: dict[int, CachePolicy] = {}
    for index in sorted(resolved):
        between.judge(resolved[index], problems)
        policy = _policy(resolved[index], origins)
        if policy is not None:
            policies[index] = policy
    by_name = {name: policies[i] for name, i in names.policies.items() if i in policies}
    models = _models(declarations, names, by_name, formatted.lines, problems)
    program = Program(source.stem, formatted.text, tuple(policies.values()), models)
    return program, tuple(problems.found)


def _check_version(source: SourceFile, file: File, problems: Problems) -> None:
    if file.version is None:
        problems.add(
            "KV901",
            "no version line",
            Label(Span(0, 0), "nothing says which version of the language this is"),
            f"write `kvgen {VERSION}` on the first line",
            fix=Fix.of(Span(0, 0), f"kvgen {VERSION}\n"),
        )
    elif file.version.text and integer(file.version.text) != VERSION:
        problems.add(
            "KV111",
            f"language version {shown(file.version.text)}",
            Label(file.version.span, f"this kvgen reads version {VERSION}"),
            f"write `kvgen {VERSION}`, or install a kvgen that reads the file",
        )


def _check_names(declarations: Sequence[Declaration], problems: Problems) -> None:
    first: dict[str, Declaration] = {}
    mentions = _Mentions(declarations)
    for declaration in declarations:
        name, span = declaration.name
        if not name:
            continue
        if keyword.iskeyword(name):
            problems.add(
                "KV302",
                f"`{name}` is a Python keyword",
                Label(span, "names become names of Python classes and files"),
                f"write `{name}_` or another name",
                fix=mentions.renamed(name, f"{name}_"),
            )
        if len(name) > _LONGEST_NAME:
            problems.add(
                "KV303",
                f"a name of {len(name)} characters",
                Label(span, "names become names of files"),
                f"shorten it to {_LONGEST_NAME} characters or fewer",
            )
        same = first.setdefault(name.lower(), declaration)
        if same is not declaration:
            problems.add(
                "KV301",
                f"the name `{shown(name)}` twice",
                Label(span, "the second one"),
                "give one of the two another name; upper and lower case count as the same",
                Label(same.name.span, "the first one"),
            )


class _Mentions:
    """Where each name of a file stands, looked up when the first keyword among them is met."""

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        self._declarations = declarations
        self._spans: dict[str, list[Span]] = {}
        self._declared: Counter[str] = Counter()

    def renamed(self, name: str, new: str) -> Fix | None:
        """The name changed everywhere; None where it is declared twice, or the new one is taken."""
        if not self._declared:
            self._look()
        if self._declared[name.lower()] > 1 or new.lower() in self._declared:
            return None
        return Fix(tuple(Edit(span, new) for span in self._spans[name]))

    def _look(self) -> None:
        for declaration in self._declarations:
            self._declared[declaration.name.text.lower()] += 1
            for text, span in _names_in(declaration):
                self._spans.setdefault(text, []).append(span)


def _names_in(declaration: Declaration) -> Iterator[Word]:
    """Its own name, then those that it mentions."""
    yield declaration.name
    if declaration.parent is not None:
        yield declaration.parent
    for clause in declaration.clauses:
        if clause.keyword == "repeat":
            yield from clause.words


# -- Policies


class _Origins:
    """The origin of each clause, made once however many policies copy it."""

    def __init__(self, lines: Mapping[int, int]) -> None:
        self.lines = lines
        self._made: dict[int, Origin] = {}

    def of(self, policy: Resolved) -> tuple[Origin, ...]:
        given = [policy.given[kind.keyword] for kind in POLICY if kind.keyword in policy.given]
        return tuple(self._of(one.clause) for one in given)

    def _of(self, clause: Clause) -> Origin:
        start = clause.span.start
        if start not in self._made:
            line = self.lines.get(start, 0)
            self._made[start] = Origin(clause.keyword, clause_text(clause), line)
        return self._made[start]


def _policy(policy: Resolved, origins: _Origins) -> CachePolicy | None:
    """Every default decided; None where heads, dim or a refused clause leave a gap."""
    heads, dim = policy.get(Heads), policy.get(Dim)
    if heads is None or dim is None or policy.refused(*policy.given):
        return None
    declaration = policy.declaration
    stateless = policy.get(Stateless) is not None
    trim = policy.get(Trim) or Trim(guarded=True, bypass_tokens=0)
    return CachePolicy(
        name=declaration.name.text,
        line=origins.lines.get(declaration.span.start, 0),
        heads=IrHeads(heads.query, heads.kv, dim.key, dim.value),
        dtype=policy.get(DType) or DType.BF16,
        scores=_scores(policy),
        retention=_retention(policy),
        storage=IrStateless() if stateless else _storage(policy, trim),
        padding=policy.get(Padding) or Padding(left=False, right=False),
        trim=Trim(guarded=True, bypass_tokens=0) if stateless else trim,
        origins=origins.of(policy),
    )


def _scores(policy: Resolved) -> Scores:
    scale, softcap = policy.get(Scale), policy.get(Softcap)
    return Scores(
        None if scale is None else scale.factor,
        None if softcap is None else softcap.cap,
        policy.get(SinkLogits) is not None,
    )


def _retention(policy: Resolved) -> Retention:
    window, sinks, chunk = policy.get(Window), policy.get(Sinks), policy.get(Chunk)
    return Retention(
        None if window is None else window.tokens,
        0 if sinks is None else sinks.tokens,
        None if chunk is None else chunk.tokens,
    )


def _storage(policy: Resolved, trim: Trim) -> IrStorage:
    storage, retention = policy.get(Storage), _retention(policy)
    bounded = retention.window_tokens is not None or retention.chunk_tokens is not None
    if storage is None:
        return Ring(trim.bypass_tokens) if bounded else Contiguous()
    if storage.shape == "fixed":
        return Fixed(storage.slots)
    if storage.shape == "ring":
        return Ring(trim.bypass_tokens if storage.slack is None else storage.slack)
    return Contiguous()


# -- Models


def _models(
    declarations: Sequence[Declaration],
    names: Names,
    policies: Mapping[str, CachePolicy],
    lines: Mapping[int, int],
    problems: Problems,
) -> tuple[Model, ...]:
    models: list[Model] = []
    for declaration in declarations:
        if declaration.kind != "model":
            continue
        written = layers.judge(declaration, names, policies, problems)
        if written.layers is not None and written.repeat is not None:
            shares = sorted((share.layer, share.donor) for _, share in written.shares)
            models.append(
                Model(
                    name=declaration.name.text,
                    line=lines.get(declaration.span.start, 0),
                    layers=written.layers.count,
                    repeat=tuple(Entry(word.text, n) for word, n in written.repeat.entries),
                    shares=tuple(Share(*share) for share in shares),
                )
            )
    return tuple(models)
