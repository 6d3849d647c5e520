"""The examples as a reader starts them. What they compute is judged in the tests of their subjects."""

from __future__ import annotations

from tests.hf.test_speculative import example


def test_own_model(capsys):
    example("own_model").main()
    shown = capsys.readouterr().out
    assert shown.count("tokens, then") == 3
    assert shown.count("Local") == 3


def test_speculative(capsys):
    example("speculative").main()
    assert "the same tokens" in capsys.readouterr().out
