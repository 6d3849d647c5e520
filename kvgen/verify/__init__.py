"""`kvgen verify`: what can be proved about a policy is proved, the rest is tested on the emitted code, on this machine.

The judge is `reference`, which executes the contract with the rules of `kvgen.model`. A policy is looked at twice: made small,
where every short sequence of calls is walked through, and at true size, by random sequences and against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kvgen.ir import CachePolicy, Program, Stateless
from kvgen.plan import BACKENDS
from kvgen.verify.clock import Clock, OutOfTime
from kvgen.verify.facts import facts
from kvgen.verify.report import PolicyReport, Report, Tested
from kvgen.verify.subject import Subject

Tell = Callable[[str, float], None]  # what is being done, and the share of all that is done
SECONDS = 20.0  # for a policy, all backends together
DEEPEST = 6  # moves of the exhaustive walk
RANDOM_MOVES = 24
_SHARES = {"random": 0.15, "walk": 0.5, "true": 0.35}
SHRINKING = 15.0  # seconds for making a counterexample short


def verify(
    program: Program,
    backends: tuple[str, ...] | None = None,
    seconds: float = SECONDS,
    tell: Tell | None = None,
    seed: int = 0,
) -> Report:
    """`backends` None: all that run here. `seconds` for each policy; a step that has begun is finished."""
    done: list[PolicyReport] = []
    for number, policy in enumerate(program.policies):
        share = _part(tell, number / len(program.policies), 1 / len(program.policies))
        done.append(verify_policy(program, policy, backends, seconds, share, seed))
    return Report(tuple(done))


def verify_policy(
    program: Program,
    policy: CachePolicy,
    backends: tuple[str, ...] | None,
    seconds: float,
    tell: Tell | None = None,
    seed: int = 0,
) -> PolicyReport:
    runnable, missing = _runnable(policy, backends)
    tests: list[Tested] = []
    for number, backend in enumerate(runnable):
        share = _part(tell, number / len(runnable), 1 / len(runnable))
        name = f"policy {policy.name} of {program.stem}.kv"
        tests += _Backend(policy, backend, name, seconds / len(runnable), share, seed).tests()
    untested = (*missing, *_never_tested(policy))
    place = f"{program.stem}.kv:{policy.line}"
    return PolicyReport(policy.name, place, facts(policy), tuple(tests), untested)


def _runnable(policy: CachePolicy, asked: tuple[str, ...] | None) -> tuple[list[str], list[str]]:
    """(backends that run here, why the others do not)."""
    from kvgen.verify.subject import small

    found: list[str] = []
    missing: list[str] = []
    for backend in asked or BACKENDS:
        try:
            small(policy, backend).new_cache(1)
            found.append(backend)
        except ImportError as error:
            missing.append(f"{backend}: {error}")
    return found, missing


def _never_tested(policy: CachePolicy) -> Iterator[str]:
    yield "other machines and devices than this one's"
    if policy.heads.kv > 2 or policy.heads.group > 4:
        yield "all heads together: two kv heads of up to four query heads were, and heads do not know of each other"


def _part(tell: Tell | None, start: float, share: float) -> Tell | None:
    if tell is None:
        return None
    return lambda what, done: tell(what, start + share * done)


class _Backend:
    """The tests of one policy on one backend."""

    def __init__(
        self,
        policy: CachePolicy,
        backend: str,
        name: str,
        seconds: float,
        tell: Tell | None,
        seed: int,
    ) -> None:
        self.policy, self.backend, self.name = policy, backend, name
        self.seconds, self.tell, self.seed = seconds, tell, seed
        self.passed = 0.0

    def clock(self, share: float, what: str) -> Clock:
        start, self.passed, tell = self.passed, self.passed + share, self.tell
        words = f"{self.name}, {self.backend}: {what}"
        told = None if tell is None else lambda done: tell(words, start + share * done)
        return Clock(self.seconds * share, told)

    def tests(self) -> Iterator[Tested]:
        """Until one finds something."""
        stateless = isinstance(self.policy.storage, Stateless)
        steps = (self.forwards(),) if stateless else (self.random(), self.walk(), self.true_size())
        for step in steps:
            for test in step:
                yield test
                if test.wrong:
                    return

    # -- stateful

    def random(self) -> Iterator[Tested]:
        from kvgen.verify.search import Failure, Random
        from kvgen.verify.subject import small

        subject = small(self.policy, self.backend)
        search = Random(subject, self.clock(_SHARES["random"], "random"), RANDOM_MOVES, self.seed)
        try:
            search.run(most=1 << 20)
        except OutOfTime:
            pass
        except Failure as failure:
            yield self.failed(failure, "a random sequence of calls goes wrong")
            return
        count = f"{search.sequences:,} random sequences of up to {RANDOM_MOVES} moves, {search.reads:,} reads"
        yield Tested(self.backend, _small_words(subject), count, search.sequences, False)

    def walk(self) -> Iterator[Tested]:
        from kvgen.verify.search import Failure, Walk
        from kvgen.verify.subject import small

        subject = small(self.policy, self.backend)
        walk, deepest, whole = (
            Walk(subject, self.clock(_SHARES["walk"], "every short sequence")),
            0,
            0,
        )
        try:
            for depth in range(1, DEEPEST + 1):
                before = walk.sequences
                walk.depth(depth)
                deepest, whole = depth, walk.sequences - before
        except OutOfTime:
            pass
        except Failure as failure:
            yield self.failed(failure, "a short sequence of calls goes wrong")
            return
        moves = "move" if deepest == 1 else "moves"
        count = f"every sequence of up to {deepest} {moves}, one row and two: {whole:,}"
        if walk.sequences > whole:
            count += f", and {walk.sequences - whole:,} others"
        yield Tested(self.backend, _small_words(subject), count, walk.sequences, deepest > 0)

    def true_size(self) -> Iterator[Tested]:
        from kvgen.verify.search import Failure, Random
        from kvgen.verify.subject import true_size

        subject = true_size(self.policy, self.backend)
        search = Random(subject, self.clock(_SHARES["true"], "true size"), 12, self.seed)
        try:
            search.run(most=1 << 20)
        except OutOfTime:
            pass
        except Failure as failure:
            yield self.failed(failure, "a random sequence of calls at true size goes wrong")
            return
        count = f"{search.sequences:,} random sequences of up to 12 moves, {search.reads:,} reads against float64"
        size = f"at true size: {subject.scale}; the largest error is {search.largest_error:.0%} of what is allowed"
        yield Tested(self.backend, size, count, search.sequences, False)

    def failed(self, failure, count: str) -> Tested:  # type: ignore[no-untyped-def]
        from kvgen.verify.script import script
        from kvgen.verify.search import shrunk

        short = shrunk(failure, SHRINKING)
        size = f"{self.name}: {short.subject.scale}"
        return Tested(self.backend, size, count, 1, False, str(short), script(short, self.name))

    # -- stateless

    def forwards(self) -> Iterator[Tested]:
        from kvgen.verify import stateless
        from kvgen.verify.subject import small, true_size

        plans = (
            (
                "walk",
                small(self.policy, self.backend),
                stateless.every_forward,
                "every length and padding",
            ),
            (
                "true",
                true_size(self.policy, self.backend),
                stateless.edge_forwards,
                "lengths at every edge",
            ),
        )
        for share, subject, forwards, what in plans:
            clock = self.clock(_SHARES[share], what)
            yield self._forwards(subject, forwards(subject), clock, what)

    def _forwards(self, subject: Subject, forwards: Iterable, clock: Clock, what: str) -> Tested:  # type: ignore[type-arg]
        from kvgen.verify import stateless

        words = (
            _small_words(subject) if what.startswith("every") else f"at true size: {subject.scale}"
        )
        try:
            done, all_done = stateless.check_all(subject, iter(forwards), clock)
        except stateless.ForwardFailure as failure:
            shown = stateless.script(failure, self.name)
            return Tested(
                self.backend, words, f"{failure.forward} goes wrong", 1, False, str(failure), shown
            )
        count = f"{what}, forward and backward: {done:,}" + (
            "" if all_done else ", not all of them"
        )
        return Tested(self.backend, words, count, done, all_done)


def _small_words(subject: Subject) -> str:
    return f"made small: {subject.scale}; float32, few heads"
