"""Plan, certify, simulate and verify privacy budgets for federated learning.

The public names load on first use, so that importing the package costs nothing. Those
of ``STABLE`` keep their names and arguments; the others may still change. docs/api.md
lists them.
"""

from __future__ import annotations

import sys
from importlib import import_module

# Public names, and the module of each.
STABLE = {
    "Spec": "privplan.spec.spec",
    "Plan": "privplan.plan",
    "Release": "privplan.accounting.release",
    "History": "privplan.accounting.release",
    "SamplingLaw": "privplan.accounting.release",
    "Relation": "privplan.accounting.release",
    "Certificate": "privplan.accounting.certificate",
    "Verdict": "privplan.verification.verdict",
    "Book": "privplan.book.book",
    "preset": "privplan.api",
    "solve": "privplan.planning.solver",
    "account": "privplan.api",
    "calibrate": "privplan.api",
    "tradeoff": "privplan.api",
    "compose": "privplan.accounting.curve",
    "what_if": "privplan.api",
    "frontier": "privplan.api",
    "forecast": "privplan.api",
    "load_run": "privplan.verification.verify",
    "verify": "privplan.api",
    "replay": "privplan.api",
    "PrivplanError": "privplan.errors",
}
PROVISIONAL = {
    "Guard": "privplan.guard",
    "PrivacyCurve": "privplan.accounting.curve",
    "RunRecord": "privplan.record",
    "accountant": "privplan.accounting.accountant",
    "certify": "privplan.accounting.certificate",
    "judge": "privplan.verification.verify",
}
_WHERE = {**STABLE, **PROVISIONAL}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("privplan.distribution").own_version()
    if name not in _WHERE:
        from privplan.guidance import no_such_name

        raise no_such_name(sys.modules[__name__], name)
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
