"""Policies from clause text, and templates with a fault in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgen import emit
from kvgen.ir import Program
from kvgen.pipeline import check_text

ROOT = Path(__file__).parents[2]
SHAPE = "heads query 2 kv 1 dim 4 dtype f32"


def program_of(clauses: str) -> Program:
    text = f"kvgen 1\npolicy Tested {{ {SHAPE} {clauses} }}\n"
    checked = check_text(text, "tested.kv")
    assert checked.program is not None, checked.diagnostics
    return checked.program


@pytest.fixture
def seed_fault(monkeypatch):
    """seed_fault(fault): from now on its template renders wrongly."""

    def seed(fault) -> None:
        render = emit._render

        def faulty(file):
            text = render(file)
            if file.template != fault.template:
                return text
            assert fault.right in text, (
                f"the template changed: say `{fault.right}` anew in faults.py"
            )
            return text.replace(fault.right, fault.wrong)

        monkeypatch.setattr(emit, "_render", faulty)

    return seed
