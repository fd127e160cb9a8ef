"""Empirical bounds on epsilon from canaries: their evidence, and methods that bound.

Other distributions declare an entry point of the group ``privplan.auditors``, whose
value is an ``Auditor``.
"""

from privplan.auditing.auditors import AUDITORS, Auditor, auditors
from privplan.auditing.evidence import (
    AUDIT,
    VIEWS,
    AuditEvidence,
    EmpiricalEpsilon,
    GroupTraces,
    empirical_epsilons,
    exceeded,
)

__all__ = [
    "AUDIT",
    "AUDITORS",
    "VIEWS",
    "AuditEvidence",
    "Auditor",
    "EmpiricalEpsilon",
    "GroupTraces",
    "auditors",
    "empirical_epsilons",
    "exceeded",
]
