"""Kernels in plain PyTorch: one module a policy, for any device."""

from __future__ import annotations

from kvgen.backends import File
from kvgen.naming import modules
from kvgen.plan import PackagePlan
from kvgen.spell import policy_values


def files(package: PackagePlan) -> tuple[File, ...]:
    return tuple(
        File(
            f"{modules(plan.policy.name)['torch']}.py",
            "torch/kernels.py.jinja" if plan.stored else "torch/stateless.py.jinja",
            policy_values(plan, package),
        )
        for plan in package.policies
    )
