"""A pool of random valid policies, the same in every run: one package, so that drawing one costs no compilation."""

import random

from tests.contract.harness import FULL, package, policy_text

SIZE = 160 if FULL else 48


def _retention(choose: random.Random) -> tuple[str, int | None]:
    """(clauses, how far a query sees at most)."""
    window = choose.choice([None, 1, 2, 3, 4, 5, 8, 13])
    chunk = choose.choice([None, None, 1, 2, 3, 4, 7])
    sinks = choose.choice([0, 0, 1, 2, 4]) if chunk is None else 0
    reach = min((n for n in (window, chunk) if n), default=None)
    words = [f"window {window}" if window else "window full"]
    words += [f"chunk {chunk}"] * bool(chunk) + [f"sinks {sinks}"] * bool(sinks)
    return " ".join(words), reach


def _storage(choose: random.Random, reach: int | None) -> tuple[str, int]:
    """(clause, slack)."""
    if reach is None or choose.random() < 0.25:
        return choose.choice(["storage contiguous", "storage fixed 40", "storage fixed"]), 0
    slack = choose.choice([0, 0, 1, 2, 3, 5])
    return f"storage ring slack {slack}" if slack else "storage ring", slack


def _trim(choose: random.Random, storage: str, slack: int) -> str:
    if choose.random() < 0.1:
        return "trim off"
    if "ring" in storage and not slack:
        return "trim guarded"
    bypass = choose.randint(0, slack if "ring" in storage else 3)
    return f"trim guarded bypass {bypass}" if bypass else "trim guarded"


def random_clauses(choose: random.Random) -> str:
    retention, reach = _retention(choose)
    storage, slack = _storage(choose, reach)
    kv, ratio = choose.choice([1, 2, 3]), choose.choice([1, 3, 5, 8])
    words = [
        f"heads query {kv * ratio} kv {kv}",
        choose.choice(["dim 8", "dim 4", "dim key 8 value 4", "dim key 3 value 5", "dim 16"]),
        f"dtype {choose.choice(['f32', 'f32', 'f16', 'bf16'])}",
        retention,
        storage,
        _trim(choose, storage, slack),
        f"padding {choose.choice(['none', 'left', 'right', 'left right', 'left right'])}",
        choose.choice(["", "", "scale 0.5"]),
        choose.choice(["", "", "softcap 2"]),
        choose.choice(["", "", "sink_logits"]),
    ]
    return " ".join(word for word in words if word)


POOL = {f"Random{i}": random_clauses(random.Random(i)) for i in range(SIZE)}


def pool_class(name: str) -> type:
    """The generated class of one policy of the pool."""
    everything = package("kvgen 1\n" + "".join(policy_text(*item) for item in POOL.items()))
    return getattr(everything, f"{name}Cache")


def open_capacity(clauses: str) -> dict[str, int]:
    """The constructor's `capacity`, where these clauses leave it open."""
    words = clauses.split()
    fixed = "fixed" in words and words[words.index("fixed") + 1 :][:1] != ["40"]
    return {"capacity": 37} if fixed else {}
