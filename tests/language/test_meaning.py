"""What a file means: text in, IR out."""

import pytest

from kvgen.ir import (
    Contiguous,
    DType,
    Entry,
    Fixed,
    Heads,
    Origin,
    Padding,
    Retention,
    Ring,
    Scores,
    Share,
    Stateless,
    Trim,
)
from kvgen.pipeline import check_text

HEAD = "heads query 8 kv 4 dim 64 "


def program(text, warnings=()):
    checked = check_text(text if text.startswith("kvgen") else f"kvgen 1\n{text}", "net.kv")
    assert [one.code for one in checked.diagnostics] == list(warnings)
    return checked.program


def policy(clauses, warnings=()):
    return program(f"policy P {{ {HEAD} {clauses} }}", warnings).policies[0]


def codes(text):
    return [one.code for one in check_text(f"kvgen 1\n{text}", "net.kv").diagnostics]


def test_defaults():
    made = policy("")
    assert made.heads == Heads(8, 4, 64, 64)
    assert made.dtype is DType.BF16
    assert made.scores == Scores(None, None, False)
    assert made.retention == Retention(None, 0, None)
    assert made.storage == Contiguous()
    assert made.padding == Padding(False, False)
    assert made.trim == Trim(True, 0)


@pytest.mark.parametrize(
    ("clauses", "storage"),
    [
        ("window 5", Ring(0)),
        ("chunk 5", Ring(0)),
        ("window full", Contiguous()),
        ("window 5 storage ring slack 3", Ring(3)),
        ("window 5 storage ring slack 3 trim guarded bypass 2", Ring(3)),
        ("window 5 storage ring trim guarded bypass 2", Ring(2)),
        ("window 5 trim guarded bypass 2", Ring(2)),
        ("window 5 trim guarded bypass 0", Ring(0)),
        ("window 5 storage contiguous", Contiguous()),
        ("storage fixed", Fixed(None)),
        ("storage fixed 4k", Fixed(4096)),
        ("window 5 storage fixed 7", Fixed(7)),
        ("window 5 stateless", Stateless()),
    ],
)
def test_storage(clauses, storage):
    assert policy(clauses).storage == storage


@pytest.mark.parametrize(
    ("written", "value"),
    [("5", 5), ("4_096", 4096), ("4k", 4096), ("1_0k", 10240), ("007", 7), ("9223372036854775807", 2**63 - 1)],
)  # fmt: skip
def test_whole_numbers(written, value):
    assert policy(f"window {written}").retention.window_tokens == value


@pytest.mark.parametrize(
    ("written", "value"),
    [("50", 50.0), ("0.0625", 0.0625), ("1e-3", 1e-3), ("2k", 2048.0), (".5", 0.5), ("5.", 5.0), ("1E+2", 100.0)],
)  # fmt: skip
def test_numbers(written, value):
    made = policy(f"scale {written} softcap {written}")
    assert made.scores == Scores(value, value, False)


@pytest.mark.parametrize("zero", ["window 5 sinks 0", "chunk 5 sinks 0", "window 5 storage ring slack 0",
                                  "trim guarded bypass 0"])  # fmt: skip
def test_zero_means_none_where_it_may_stand(zero):
    assert policy(zero).retention.sink_tokens == 0


def test_all_clauses():
    made = policy(
        "dtype f16 scale 0.1 softcap 50 sink_logits window 512 sinks 4 storage ring slack 7 "
        "padding left right trim guarded bypass 7"
    )
    assert made.dtype is DType.F16
    assert made.scores == Scores(0.1, 50.0, True)
    assert made.retention == Retention(512, 4, None)
    assert made.padding == Padding(True, True)
    assert made.trim == Trim(True, 7)


def test_key_and_value_dimensions():
    made = program("policy P { heads query 8 kv 8 dim key 192 value 128 }").policies[0]
    assert made.heads == Heads(8, 8, 192, 128)


# -- from


def test_a_copied_clause_is_replaced():
    _, child = program(
        f"policy A {{ {HEAD} window 512 padding left right }} policy B from A {{ window 1k padding none }}"
    ).policies
    assert child.retention.window_tokens == 1024
    assert child.padding == Padding(False, False)


def test_from_a_later_policy():
    child, _ = program(f"policy B from A {{ }} policy A {{ {HEAD} window 5 }}").policies
    assert (child.name, child.retention.window_tokens) == ("B", 5)


def test_stateless_drops_what_is_stored():
    _, child = program(
        f"policy A {{ {HEAD} window 5 storage ring slack 7 trim guarded bypass 7 }} policy B from A {{ stateless }}"
    ).policies
    assert child.storage == Stateless()
    assert child.trim == Trim(True, 0)
    assert {origin.clause for origin in child.origins} == {"heads", "dim", "window", "stateless"}


def test_storage_drops_a_copied_stateless():
    _, child = program(
        f"policy A {{ {HEAD} window 5 stateless }} policy B from A {{ storage ring trim off padding left }}"
    ).policies
    assert child.storage == Ring(0)
    assert child.padding == Padding(True, False)


def test_a_default_ring_goes_with_its_window():
    _, child = program(f"policy A {{ {HEAD} window 5 }} policy B from A {{ window full }}").policies
    assert child.storage == Contiguous()


def test_a_problem_is_told_where_it_is_made_and_not_again():
    bad = f"policy A {{ {HEAD} storage ring }}"
    assert codes(bad + " policy B from A { padding left } policy C from B { }") == ["KV209"]
    assert codes("policy A { dim 5 } policy B from A { window 5 }") == ["KV204"]
    assert codes(f"policy A {{ {HEAD} window 0 }} policy B from A {{ storage ring }}") == ["KV201"]
    assert codes("policy B from A { storage ring }") == ["KV305"]
    assert codes("policy A from B { storage ring } policy B from A { }") == ["KV306"]


def test_the_rules_hold_for_what_was_copied():
    parent = f"policy A {{ {HEAD} window 5 storage ring slack 3 sinks 2 }}"
    assert codes(parent + "policy B from A { window full }") == ["KV209", "KV902"]
    assert codes(parent + "policy B from A { trim guarded bypass 4 }") == ["KV210"]
    assert codes(parent + "policy B from A { chunk 4 }") == ["KV211", "KV904"]


def test_a_long_line_of_policies():
    count = 20_000
    lines = [f"policy P{i} from P{i + 1} {{ }}" for i in range(count)]
    lines.append(f"policy P{count} {{ {HEAD} window 5 }}")
    made = program("\n".join(lines))
    assert len(made.policies) == count + 1
    assert made.policies[0].origins is not None
    assert {one.retention.window_tokens for one in made.policies} == {5}


# -- Models


def test_a_model():
    made = program(
        f"policy A {{ {HEAD} window 5 }} policy B {{ {HEAD} }}"
        "model M { share 12 from 9 repeat A * 5, B layers 26 share 10 from 9 }"
    ).models[0]
    assert (made.name, made.layers) == ("M", 26)
    assert made.repeat == (Entry("A", 5), Entry("B", 1))
    assert made.shares == (Share(10, 9), Share(12, 9))


@pytest.mark.parametrize(
    ("layer", "donor", "expected"),
    [
        (12, 10, []),
        (11, 5, []),
        (12, 11, ["KV408"]),
        (5, 5, ["KV405"]),
        (0, 0, ["KV405"]),
        (5, 11, ["KV406"]),
        (26, 5, ["KV404"]),
        (26, 26, ["KV404", "KV404"]),
    ],
)
def test_shares(layer, donor, expected):
    text = (
        f"policy A {{ {HEAD} window 5 }} policy B {{ {HEAD} }}"
        f"model M {{ layers 26 repeat A * 5, B share {layer} from {donor} }}"
    )
    assert sorted(codes(text)) == expected


@pytest.mark.parametrize(
    "other",
    ["heads query 8 kv 8 dim 64 window 5", "heads query 8 kv 4 dim 32 window 5", f"{HEAD} window 6",
     f"{HEAD} window 5 sinks 1", f"{HEAD} window 5 chunk 50", "heads query 8 kv 4 dim key 64 value 32 window 5"],
)  # fmt: skip
def test_shares_need_policies_that_see_the_same(other):
    text = (
        f"policy A {{ {HEAD} window 5 }} policy B {{ {other} }}"
        "model M { layers 4 repeat A, B share 3 from 0 }"
    )
    assert codes(text) == ["KV408"]


def test_shares_across_policies_that_differ_in_storage_only():
    text = (
        f"policy A {{ {HEAD} window 5 }} policy B {{ {HEAD} window 5 storage contiguous padding left }}"
        "model M { layers 4 repeat A, B share 3 from 0 }"
    )
    assert codes(text) == []


def test_huge_models_are_not_laid_out():
    made = program(
        f"policy A {{ {HEAD} window 5 }} policy B {{ {HEAD} window 5 }}"
        "model M { layers 9223372036854775807 repeat A * 9223372036854775807, B * 4k"
        " share 9223372036854775806 from 0 }"
    ).models[0]
    assert made.layers == 2**63 - 1
    assert made.repeat == (Entry("A", 2**63 - 1), Entry("B", 4096))
    assert made.policy_of(2**63 - 2) == "A"


# -- Files


def test_origins_and_lines_are_those_of_the_formatted_file():
    made = program(f"kvgen 1 policy A {{ window    4k {HEAD} }} model M {{ layers 2 repeat A }}")
    lines = made.formatted.splitlines()
    policy, model = made.policies[0], made.models[0]
    assert lines[policy.line - 1] == "policy A {"
    assert lines[model.line - 1] == "model M {"
    assert [origin.clause for origin in policy.origins] == ["heads", "dim", "window"]
    assert policy.origins[2] == Origin("window", "window 4k", 4)
    for origin in policy.origins:
        assert lines[origin.line - 1].split() == origin.text.split()


def test_words_are_not_reserved():
    made = program(
        f"policy window {{ {HEAD} }} policy policy from window {{ }} policy full from policy {{ }}"
        "model model { layers 5 repeat policy, window, full * 2 }"
    )
    assert [one.name for one in made.policies] == ["window", "policy", "full"]
    assert made.models[0].repeat[2] == Entry("full", 2)


@pytest.mark.parametrize("text", ["kvgen 1", "kvgen 1\n# nothing yet\n", "# first\n\nkvgen 1\n"])
def test_a_file_without_policies_is_an_empty_program(text):
    checked = check_text(text, "net.kv")
    assert checked.diagnostics == ()
    assert checked.program.policies == ()


@pytest.mark.parametrize("name", ["net.kv", "some/where/net.kv", "C:\\some\\net.kv", "net"])
def test_the_stem_names_the_package(name):
    assert check_text("kvgen 1", name).program.stem == "net"


def test_byte_order_mark_and_line_ends():
    text = f"kvgen 1\n\npolicy A {{ {HEAD} # why\n window 5 }}\n# end\n"
    plain = check_text(text, "net.kv").program
    for end in ("\r\n", "\r"):
        other = check_text("\ufeff" + text.replace("\n", end), "net.kv")
        assert other.diagnostics == ()
        assert other.program == plain


def test_places_count_from_one_after_a_byte_order_mark():
    one = check_text("\ufeffkvgen 2\r\n", "net.kv").diagnostics[0]
    assert one.place == (1, 7)
    one = check_text("kvgen 1\r\n\r\npolicy é {}", "net.kv").diagnostics[0]
    assert one.place == (3, 8)


def test_all_problems_in_one_run():
    text = """policy Local {
    heads    query 8 kv 3
    windw    512
    storage  contiguous slack 7
    padding  left rihgt
}
policy Lambda from Locl { sinks -4 dtype f64 }
model M { layers 0 repeat Lambda, Global }
"""
    assert [one.code for one in check_text(text, "net.kv").diagnostics] == [
        "KV901", "KV205", "KV206", "KV101", "KV203", "KV102", "KV305", "KV201", "KV102", "KV201", "KV403",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("policy A { windw 5 4 } policy B extra { }", ["KV204", "KV205", "KV101", "KV113"]),
        ("policy A { from B { }", ["KV204", "KV205", "KV101"]),
        ("policy A { foo 1 bar 2 baz 3 dim 4 heads query 2 kv 1 }", ["KV101"] * 3),
        ("model M { repeat A B\n layrs 5\n foo 3\n bar 4 }", ["KV403", "KV102", "KV101", "KV101", "KV101"]),
        ("policy A { windw 4.5 stroage rnig slack -1 }", ["KV204", "KV205", "KV101", "KV105", "KV101", "KV102", "KV201"]),
    ],
)  # fmt: skip
def test_a_mistake_hides_no_other_and_brings_none(text, expected):
    assert codes(text) == expected
