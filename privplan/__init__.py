"""Plan, certify, simulate and verify privacy budgets for federated learning.

The public names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module

_WHERE = {
    "Spec": "privplan.spec.spec",
    "Plan": "privplan.plan",
    "RunRecord": "privplan.record",
    "Release": "privplan.accounting.release",
    "History": "privplan.accounting.release",
    "SamplingLaw": "privplan.accounting.release",
    "Relation": "privplan.accounting.release",
    "accountant": "privplan.accounting.accountant",
    "certify": "privplan.accounting.certificate",
    "compose": "privplan.accounting.curve",
    "PrivacyCurve": "privplan.accounting.curve",
    "solve": "privplan.planning.solver",
    "Guard": "privplan.guard",
    "judge": "privplan.verification.verify",
    "load_run": "privplan.verification.verify",
    "PrivplanError": "privplan.errors",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'privplan' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
