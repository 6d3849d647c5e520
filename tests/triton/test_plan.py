"""What is decided before anything runs: splits, tiles, and the code that a policy does without."""

import ast

import pytest

from kvgen.backends import triton, triton_tiles
from kvgen.pipeline import compile_text
from tests.contract.harness import policy_of, program_text

SM_90 = next(target for target in triton_tiles.TARGETS if target.name == "sm_90")


def emitted(clauses):
    """The kernels' module without comments, docstrings and the header."""
    files = compile_text(program_text({"Tested": clauses}), "planned").files
    return ast.unparse(ast.parse(files["planned/tested_triton.py"]))


def test_splits_cover_a_ring_and_none_is_empty():
    for window in (1, 100, 128, 500, 1024, 4096, 131_072):
        policy = policy_of(f"heads query 8 kv 2 dim 128 window {window} storage ring slack 7")
        plan = triton_tiles.decode_plan(policy, SM_90, 2)
        assert (plan.splits - 1) * plan.split < window + 7 <= plan.splits * plan.split
        assert plan.splits == 1 or plan.split >= 128
        assert plan.splits <= triton_tiles.MOST_SPLITS


def test_a_short_window_needs_no_merge():
    policy = policy_of("heads query 32 kv 8 dim 128 window 128 storage ring slack 7")
    assert triton_tiles.decode_plan(policy, SM_90, 2).splits == 1


def test_a_limit_that_no_row_reaches_is_none():
    policy = policy_of("window 9223372036854775807 storage contiguous")
    assert triton_tiles.limits(policy) == (None, None, 0)


@pytest.mark.parametrize("target", [*triton_tiles.TARGETS, triton_tiles.INTERPRETER])
def test_every_dim_has_tiles(target):
    for dim in (1, 16, 64, 80, 128, 192, 256, 512):
        policy = policy_of(f"heads query 2 kv 1 dim {dim} window 100 storage ring")
        assert triton_tiles.window_plan(policy, target, 2).rows >= 16
        assert triton_tiles.decode_plan(policy, target, 4).keys >= 16


def test_no_code_for_what_the_policy_does_not_have():
    plain = emitted("dim 64 window 128 storage ring")
    for word in ("SOFTCAP", "SINKS", "CHUNK", "sink_logits", "KEY_DIM, other", "b_tiles"):
        assert word not in plain
    assert "SOFTCAP" in emitted("dim 64 softcap 30")
    assert "sink_logits" in emitted("dim 64 sink_logits")
    assert "b_tiles" in emitted("dim 64 window 128 storage ring slack 7")


def test_a_full_ring_without_slack_has_no_mask_by_position():
    """Its decode asks of no key whether it is seen: all that lies in the ring is."""
    text = emitted("dim 64 window 128 storage ring")
    decode = text[text.index("def decode(") : text.index("def merge(")]
    assert "sees(" not in decode


def test_constants_name_their_clauses():
    policy = policy_of("dim 64 window 128 storage ring slack 7")
    found = {constant.name: constant.comment for constant in triton.constants(policy, "planned")}
    assert found["WINDOW"].endswith("window 128") and "planned.kv:" in found["WINDOW"]
    assert found["RING"].endswith("storage ring slack 7")
