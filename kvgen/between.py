"""The rules between the clauses of a policy, copied ones included.

A combination that was copied whole was judged where it was first written; here only those count that the policy has a part
in. Each rule asks first whether all it needs to know could be read.
"""

from __future__ import annotations

from kvgen.clauses.chunk import Chunk
from kvgen.clauses.sinks import Sinks
from kvgen.clauses.stateless import Stateless
from kvgen.clauses.storage import Storage
from kvgen.clauses.window import Window
from kvgen.diagnostics import Fix, Label, Problems
from kvgen.inherit import Resolved
from kvgen.ir import Padding, Trim
from kvgen.source import Span

_Part = tuple[str, str]  # a keyword and what is to be said of it


def judge(policy: Resolved, problems: Problems) -> None:
    """Report whatever does not go together."""
    for rule in (
        _required,
        _stateless_alone,
        _stateless_left,
        _ring_reach,
        _slack_for_bypass,
        _sinks_in_chunks,
        _sinks_without_window,
        _sinks_cover_window,
        _chunk_below_window,
        _bypass_without_ring,
    ):
        rule(policy, problems)


def _report(
    policy: Resolved,
    problems: Problems,
    code: str,
    message: str,
    help: str,
    *parts: _Part,
    fix: Fix | None = None,
) -> None:
    """At the policy's own clause among the parts, with the others beside it; nothing where none is its own."""
    written = [part for part in parts if part[0] in policy.given]
    own = next((part for part in written if policy.own(part[0])), None)
    if own is None:
        return
    labels = [policy.label(*part) for part in written if part is not own]
    problems.add(code, message, policy.label(*own), help, *labels, fix=fix)


def _required(policy: Resolved, problems: Problems) -> None:
    """Heads and dim. A child of a policy without them is not told again."""
    declaration = policy.declaration
    if policy.doubtful or declaration.parent is not None:
        return
    for code, keyword, form in (
        ("KV204", "heads", "heads query N kv M"),
        ("KV205", "dim", "dim D"),
    ):
        if keyword not in policy.given:
            problems.add(
                code,
                f"`{declaration.name.text}` has no {keyword}",
                Label(declaration.name.span, f"a policy needs `{keyword}`"),
                f"add `{form}`, or copy a policy that has it with `from`",
            )


def _stateless_alone(policy: Resolved, problems: Problems) -> None:
    if policy.get(Stateless) is None:
        return
    for code, keyword, why in (
        ("KV213", "storage", "but this says how tokens are stored"),
        ("KV214", "trim", "but this says which stored tokens may be taken back"),
    ):
        if keyword not in policy.given:
            continue
        _report(
            policy,
            problems,
            code,
            f"stateless beside {keyword}",
            f"leave `{keyword}` out, or `stateless`",
            (keyword, why),
            ("stateless", "this stores nothing"),
        )


def _stateless_left(policy: Resolved, problems: Problems) -> None:
    padding = policy.get(Padding)
    if policy.get(Stateless) is None or padding is None or not padding.left:
        return
    _report(
        policy,
        problems,
        "KV215",
        "stateless with left padding",
        "write `padding right`" if padding.right else "write `padding right` or `padding none`",
        ("stateless", "a forward of the full sequence counts positions from column 0"),
        ("padding", "left padding moves them"),
        fix=_without_left(policy) if padding.right else None,
    )


def _without_left(policy: Resolved) -> Fix | None:
    """A copied clause is another policy's, and stays."""
    if not policy.own("padding"):
        return None
    left, right = policy.given["padding"].clause.words
    return Fix.of(Span(left.span.start, right.span.end), "right")


def _reach(policy: Resolved) -> bool:
    """Whether a window or a chunk bounds what a query sees."""
    window = policy.get(Window)
    return (window is not None and window.tokens is not None) or policy.get(Chunk) is not None


def _ring_reach(policy: Resolved, problems: Problems) -> None:
    storage = policy.get(Storage)
    if storage is None or storage.shape != "ring" or _reach(policy):
        return
    if policy.unknown("window", "chunk") and not _says_full(policy):
        return
    if policy.refused("chunk"):
        return
    _report(
        policy,
        problems,
        "KV209",
        "a ring without a window or a chunk",
        "add `window N` or `chunk N`, or write `storage contiguous`",
        ("storage", "a ring holds as many tokens as a query sees"),
        ("window", "every query sees all tokens before it"),
    )


def _says_full(policy: Resolved) -> bool:
    window = policy.get(Window)
    return window is not None and window.tokens is None and not policy.doubtful


def _slack_for_bypass(policy: Resolved, problems: Problems) -> None:
    storage, trim = policy.get(Storage), policy.get(Trim)
    if storage is None or storage.slack is None or trim is None:
        return
    if storage.slack >= trim.bypass_tokens or policy.get(Stateless) is not None:
        return
    bypass = trim.bypass_tokens
    _report(
        policy,
        problems,
        "KV210",
        f"slack {storage.slack} is smaller than bypass {bypass}",
        f"write `storage ring slack {bypass}`, or leave the slack out: then it is {bypass}",
        ("storage", f"keeps {storage.slack} slots for rollback"),
        ("trim", f"takes up to {bypass} tokens back unasked"),
        fix=_more_slack(policy, bypass),
    )


def _more_slack(policy: Resolved, slack: int) -> Fix | None:
    """A copied clause is another policy's, and stays."""
    if not policy.own("storage"):
        return None
    return Fix.of(policy.given["storage"].clause.numbers()[-1].span, str(slack))


def _sinks(policy: Resolved) -> int:
    sinks = policy.get(Sinks)
    return 0 if sinks is None else sinks.tokens


def _sinks_in_chunks(policy: Resolved, problems: Problems) -> None:
    if _sinks(policy) == 0 or policy.get(Chunk) is None:
        return
    _report(
        policy,
        problems,
        "KV211",
        "sinks with a chunk",
        "leave `sinks` out, or write `window N` instead of the chunk",
        ("sinks", "these positions should stay visible for ever"),
        ("chunk", "but a query sees only its own chunk"),
    )


def _sinks_without_window(policy: Resolved, problems: Problems) -> None:
    if _sinks(policy) == 0 or _reach(policy) or policy.refused("chunk"):
        return
    if policy.unknown("window") and not _says_full(policy):
        return
    _report(
        policy,
        problems,
        "KV902",
        "sinks without a window",
        "leave `sinks` out, or add `window N`",
        ("sinks", "these positions are visible anyway"),
        ("window", "every query sees all tokens before it"),
    )


def _sinks_cover_window(policy: Resolved, problems: Problems) -> None:
    window = policy.get(Window)
    if window is None or window.tokens is None or not 0 < window.tokens <= _sinks(policy):
        return
    if policy.get(Chunk) is not None:
        return
    _report(
        policy,
        problems,
        "KV903",
        f"{_sinks(policy)} sinks and a window of {window.tokens}",
        "a few sinks are enough (4 are usual); perhaps the two numbers are swapped",
        ("sinks", f"the first {_sinks(policy)} positions are seen for ever"),
        ("window", f"but only the {window.tokens} newest"),
    )


def _chunk_below_window(policy: Resolved, problems: Problems) -> None:
    window, chunk = policy.get(Window), policy.get(Chunk)
    if window is None or window.tokens is None or chunk is None or chunk.tokens >= window.tokens:
        return
    _report(
        policy,
        problems,
        "KV904",
        f"a chunk of {chunk.tokens} below the window of {window.tokens}",
        "leave `window` out, or make the chunk longer than the window",
        ("chunk", "no query ever sees further than its chunk"),
        ("window", "so this window is never reached"),
    )


def _bypass_without_ring(policy: Resolved, problems: Problems) -> None:
    trim, storage = policy.get(Trim), policy.get(Storage)
    if trim is None or trim.bypass_tokens == 0 or policy.get(Stateless) is not None:
        return
    ring = _reach(policy) if storage is None else storage.shape == "ring"
    if ring or (
        storage is None and policy.unknown("storage", "window", "chunk") and not _says_full(policy)
    ):
        return
    if policy.refused("storage", "window", "chunk"):
        return
    _report(
        policy,
        problems,
        "KV905",
        "bypass without a ring",
        "leave the bypass out: without a ring every trim is exact",
        ("trim", "asks for tokens to be taken back unasked"),
        ("storage" if storage else "window", "nothing is overwritten here"),
    )
