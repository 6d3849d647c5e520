"""Plan to files: render the templates, put the header on. Reproducible: no clock, no folder, no locale, no hash order."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jinja2

from kvgen import backends, header, hf_plan, self_test
from kvgen.backends import File
from kvgen.ir import Ring, Stateless
from kvgen.naming import modules, names, natural
from kvgen.plan import PackagePlan
from kvgen.spell import backend_words, model_values, policy_values


def emit(package: PackagePlan, tests: bool = False) -> Mapping[str, str]:
    """{"gemma3/local_cache.py": text}, by path, for a whole package. `tests`: with a test file of its own."""
    program = package.program
    source_name = f"{program.stem}.kv"
    found = {
        file.name: header.stamp(_render(file), source_name, program.formatted, file.comment)
        for file in (*_files(package), *([self_test.file(package)] if tests else []))
    }
    return {f"{program.stem}/{name}": found[name] for name in sorted(found)}


def _files(package: PackagePlan) -> list[File]:
    files = [File("__init__.py", "package/__init__.py.jinja", _exports(package))]
    files += _shared(package)
    for plan in package.policies:
        values = policy_values(plan, package)
        module = modules(plan.policy.name)
        files.append(File(f"{module['policy']}.py", "cache/policy.py.jinja", values))
        files.append(File(f"{module['cache']}.py", _cache_template(plan.policy.storage), values))
    for caches in package.models:
        values = model_values(caches, package)
        files.append(File(f"{values['module']}.py", "model/caches.py.jinja", values))
    files += hf_plan.files(package.program)
    for backend in package.backends:
        files += backends.files(backend, package)
    return files


def _cache_template(storage: object) -> str:
    match storage:
        case Ring():
            return "cache/ring.py.jinja"
        case Stateless():
            return "cache/stateless.py.jinja"
        case _:
            return "cache/linear.py.jinja"


def _shared(package: PackagePlan) -> list[File]:
    """The modules that policies have in common, only those that this package needs."""
    if not package.policies:
        return []
    stored = any(plan.stored for plan in package.policies)
    stateless = not all(plan.stored for plan in package.policies)
    logits = any(plan.policy.scores.sink_logits for plan in package.policies)
    needed = ["_backends", "_cache", "_checks", "_columns", "_masks", "_reads", "_tiles"]
    needed += ["_compiled", "_rows", "_state", "_stateful", "_storage"] if stored else []
    needed += ["_stateless"] if stateless else []
    needed += ["_models"] if package.models else []
    values = {"stored": stored, "sink_logits": logits, "backends": backend_words()}
    return [File(f"{name}.py", f"package/{name}.py.jinja", values) for name in needed]


def _exports(package: PackagePlan) -> dict[str, Any]:
    found = [
        *(
            (modules(plan.policy.name)["cache"], names(plan.policy.name)["cache"])
            for plan in package.policies
        ),
        *(
            (values["module"], values["name"]["caches"])
            for values in (model_values(caches, package) for caches in package.models)
        ),
    ]
    exports = [{"module": module, "name": name} for module, name in sorted(found, key=natural)]
    return {
        "exports": exports,
        "names": sorted((export["name"] for export in exports), key=natural),
        "stem": package.program.stem,
    }


def _render(file: File) -> str:
    text = _fixed(file.template)
    if text is None:
        text = _environment().get_template(file.template).render(file.values)
    return text.rstrip("\n") + "\n"


@functools.cache
def _fixed(template: str) -> str | None:
    """A template that says the same of every policy is its own text: nothing to parse."""
    loader = _environment().loader
    assert loader is not None
    source, _, _ = loader.get_source(_environment(), template)
    return None if "{%" in source or "{{" in source or "{#" in source else source


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("kvgen", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
        cache_size=-1,
    )
