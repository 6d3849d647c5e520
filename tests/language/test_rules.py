"""Which combinations of clauses are refused and warned, held against a second, plain reading of the lists of the
language's description: whatever is written in the grammar and not listed compiles."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvgen.pipeline import check_text

CHOICES = {
    "window": [None, "full", 1, 4, 8],
    "sinks": [None, 0, 2, 4],
    "chunk": [None, 4, 6],
    "storage": [
        None,
        ("contiguous",),
        ("fixed",),
        ("fixed", 9),
        ("ring",),
        ("ring", 0),
        ("ring", 2),
    ],
    "stateless": [None, True],
    "padding": [None, "none", "left", "right", "left right"],
    "trim": [None, ("off",), ("guarded",), ("guarded", 0), ("guarded", 2), ("guarded", 3)],
}
clauses = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}).map(
    lambda chosen: {name: value for name, value in chosen.items() if value is not None}
)  # fmt: skip
REQUIRED = "heads query 4 kv 2 dim 8"


def written(chosen):
    return " ".join(_clause(name, value) for name, value in chosen.items())


def _clause(name, value):
    match name, value:
        case "stateless", _:
            return "stateless"
        case "storage", ("ring", slack):
            return f"storage ring slack {slack}"
        case "storage", (shape, *slots):
            return " ".join(["storage", shape, *map(str, slots)])
        case "trim", ("guarded", bypass):
            return f"trim guarded bypass {bypass}"
        case "trim", (word,):
            return f"trim {word}"
    return f"{name} {value}"


def expected(chosen):
    """The codes of one policy's combination of clauses."""
    found = set()
    window = chosen.get("window", "full")
    chunk, sinks = chosen.get("chunk"), chosen.get("sinks", 0)
    reach = window != "full" or chunk is not None
    storage = chosen.get("storage", ("ring",) if reach else ("contiguous",))
    trim = chosen.get("trim", ("guarded",))
    bypass = trim[1] if len(trim) == 2 else 0
    ring = storage[0] == "ring"
    stateless = "stateless" in chosen
    if stateless:
        found |= {"KV213"} if "storage" in chosen else set()
        found |= {"KV214"} if "trim" in chosen else set()
        found |= {"KV215"} if "left" in chosen.get("padding", "") else set()
    if ring and not reach:
        found.add("KV209")
    if not stateless and ring and len(storage) == 2 and storage[1] < bypass:
        found.add("KV210")
    if sinks and chunk:
        found.add("KV211")
    if sinks and not reach:
        found.add("KV902")
    if sinks and window != "full" and sinks >= window and not chunk:
        found.add("KV903")
    if chunk and window != "full" and chunk < window:
        found.add("KV904")
    if not stateless and bypass and not ring:
        found.add("KV905")
    return found


def codes(text):
    return {one.code for one in check_text(f"kvgen 1\n{text}", "net.kv").diagnostics}


@given(clauses)
@settings(max_examples=500, deadline=None)
def test_one_policy(chosen):
    assert codes(f"policy A {{ {REQUIRED} {written(chosen)} }}") == expected(chosen)


@given(clauses, clauses)
@settings(max_examples=500, deadline=None)
def test_a_policy_that_copies_a_good_one(parent, child):
    if expected(parent) - {"KV902", "KV903", "KV904", "KV905"}:
        return
    copied = dict(parent)
    if "stateless" in child:
        copied.pop("storage", None)
        copied.pop("trim", None)
    if "storage" in child:
        copied.pop("stateless", None)
    both = {**copied, **child}
    text = f"policy A {{ {REQUIRED} {written(parent)} }} policy B from A {{ {written(child)} }}"
    found = codes(text)
    assert found <= expected(parent) | expected(both)
    assert {code for code in expected(both) if code < "KV9"} <= found
    assert codes(f"policy A {{ {REQUIRED} {written(both)} }}") == expected(both)
