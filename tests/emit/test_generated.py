"""The files themselves: the golden record, what they import, what a name in them can do, how they read."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kvgen
from kvgen import header

ROOT = Path(__file__).parents[2]
POLICIES = sorted((ROOT / "policies").glob("*.kv"))
FREE = {*sys.stdlib_module_names, "torch", "triton", "transformers"}


@pytest.fixture(scope="module")
def compiled():
    return {path.stem: kvgen.compile_file(path) for path in POLICIES}


def test_every_policy_compiles_without_a_word(compiled):
    for stem, result in compiled.items():
        assert result.files, (stem, result.diagnostics)
        assert not result.diagnostics, stem


def test_generated_is_what_the_compiler_writes(compiled):
    """The golden record: a refactor leaves it unchanged, a change of templates is seen in review."""
    for result in compiled.values():
        for name, text in result.files.items():
            assert (ROOT / "generated" / name).read_text(encoding="utf-8") == text, name


def test_each_file_has_its_header(compiled):
    for stem, result in compiled.items():
        for name, text in result.files.items():
            found = header.read(text)
            assert found is not None and header.intact(text), name
            assert found.source_name == f"{stem}.kv"


def test_a_package_needs_nothing_but_torch(compiled):
    for result in compiled.values():
        for name, text in result.files.items():
            if not name.endswith(".py"):
                continue
            for node in ast.walk(ast.parse(text)):
                modules = []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    modules = [node.module]
                for module in modules:
                    assert module.split(".")[0] in FREE, f"{name} imports {module}"


def test_no_file_imports_a_private_module_that_is_not_there(compiled):
    for stem, result in compiled.items():
        there = {Path(name).stem for name in result.files}
        for name, text in result.files.items():
            if not name.endswith(".py"):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                    assert node.module in there, f"{stem}: {name} imports .{node.module}"


def test_all_shared_modules_are_used(compiled):
    """No package carries a module that nothing in it imports."""
    for stem, result in compiled.items():
        text = "\n".join(result.files.values())
        for name in result.files:
            module = Path(name).stem
            if module.startswith("_") and module != "__init__":
                uses = (f".{module} import", f"from . import {module}", f'"{module}')
                assert any(use in text for use in uses), f"{stem}: {module}"


@pytest.mark.parametrize("command", [["format", "--check"], ["check"]])
def test_generated_pleases_ruff(command):
    pytest.importorskip("ruff")
    ruff = [sys.executable, "-m", "ruff", *command, "generated"]
    result = subprocess.run(ruff, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


HOSTILE = '''kvgen 1
# """ '; import os; os.system("touch hacked") {{ 7 * 7 }} {% raw %} \\" \\n
policy import_os { # {{ config }} """
    heads query 2 kv 1
    dim 8
}
policy __class__x { heads query 2 kv 1 dim 8 window 4 }
'''


def test_text_cannot_become_code():
    """Comments are dropped; names end up in class names, file names and comments only."""
    text = HOSTILE.replace("__class__x", "a__class__x")
    result = kvgen.compile_text(text, "hostile")
    assert result.files, result.diagnostics
    for name, file in result.files.items():
        assert "hacked" not in file and "config }}" not in file and "{%" not in file, name
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(file)):
            if isinstance(node, ast.Name):
                assert "import_os" not in node.id or node.id.startswith("Import_os"), name


def test_names_differ_only_in_class_names_files_and_comments():
    """Two names for one policy: the code is the same once the names are taken out."""

    def code(name: str) -> list[str]:
        text = f"kvgen 1\npolicy {name} {{ heads query 2 kv 1 dim 8 window 4 sinks 1 }}\n"
        files = kvgen.compile_text(text, "p").files
        bodies = [ast.unparse(ast.parse(f)) for n, f in sorted(files.items()) if n.endswith(".py")]
        return [
            body.replace(name[0].upper() + name[1:], "N").replace(name.lower(), "n")
            for body in bodies
        ]

    assert sorted(code("Qqqq")) == sorted(code("Zzzz"))
