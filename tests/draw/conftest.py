"""Programs from clause text, and the policies of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgen.ir import Program
from kvgen.pipeline import check_text

ROOT = Path(__file__).parents[2]
POLICY_FILES = sorted((ROOT / "policies").glob("*.kv"))


def program_of(text: str, name: str = "drawn.kv") -> Program:
    checked = check_text(text, name)
    assert checked.program is not None, checked.diagnostics
    return checked.program


def policy_program(clauses: str) -> Program:
    return program_of(f"kvgen 1\npolicy Drawn {{ heads query 2 kv 1 dim 8 {clauses} }}\n")


@pytest.fixture(params=POLICY_FILES, ids=lambda path: path.stem)
def program(request) -> Program:
    return program_of(request.param.read_text(), request.param.name)
