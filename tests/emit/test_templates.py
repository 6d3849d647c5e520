"""Templates spell what the plan decided: names, flags, loops, includes and macros, and no logic."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

TEMPLATES = Path(__file__).parents[2] / "kvgen" / "templates"
PATHS = sorted(path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*.jinja"))

SPELLING = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Getattr,
    nodes.Const,
    nodes.If,
    nodes.Not,
    nodes.For,
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Macro,
    nodes.With,
    nodes.Call,
    nodes.Keyword,
    nodes.Tuple,
    nodes.EvalContextModifier,
)


def tree(path: str) -> nodes.Template:
    return jinja2.Environment().parse((TEMPLATES / path).read_text(encoding="utf-8"))


def macros(template: nodes.Template) -> set[str]:
    """The macros that a template defines or imports."""
    own = {node.name for node in template.find_all(nodes.Macro)}
    for node in template.find_all(nodes.FromImport):
        own |= {name if isinstance(name, str) else name[1] for name in node.names}
    return own


@pytest.mark.parametrize("path", PATHS)
def test_a_template_holds_no_logic(path):
    template = tree(path)
    known = macros(template)
    for node in template.find_all(nodes.Node):
        where = f"{path}:{node.lineno}"
        assert isinstance(node, SPELLING), f"{where}: {type(node).__name__} belongs in the plan"
        if isinstance(node, nodes.Call):
            assert isinstance(node.node, nodes.Name) and node.node.name in known, f"{where}: a call"


@pytest.mark.parametrize("path", PATHS)
def test_a_template_is_short(path):
    lines = (TEMPLATES / path).read_text(encoding="utf-8").count("\n")
    assert lines <= 420, f"{path} has {lines} lines: look for the second idea in it"


def test_the_check_can_fail():
    bad = jinja2.Environment().parse("{% if a > 1 %}{{ b + 1 }}{% endif %}")
    kinds = {type(node) for node in bad.find_all(nodes.Node)}
    assert not all(issubclass(kind, SPELLING) for kind in kinds)
