"""What a check is: a function of a run that returns one line of a verdict, in a registry.

A module of this package registers its checks with ``register``; other distributions declare an
entry point of the group ``privplan.checks``, whose value is a function of a ``Run`` that returns
a ``Check``, or a ``RunCheck`` when its place in the verdict matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from privplan.auditing.findings import AuditEvidence
from privplan.plan import GroupPlan, Plan
from privplan.record import GroupShare, LedgerText, ReleaseRecord, RunRecord
from privplan.registry import Registry
from privplan.values import Value

Shares = list[tuple[ReleaseRecord, GroupShare]]


class Check(Value):
    """One line of a verdict."""

    name: str
    passed: bool
    reason: str


@dataclass(frozen=True)
class Run:
    """A run to verify: the executed plan, the ledger, the record, and the canaries if any."""

    plan: Plan
    ledger: LedgerText
    record: RunRecord
    audit: AuditEvidence | None = None

    def shares(self, group: str) -> Shares:
        """Releases that a group took part in, each with the group's share."""
        pairs = ((release, share) for release in self.ledger.records for share in release.shares)
        return [(release, share) for release, share in pairs if share.group == group]


Inspect = Callable[[Run], Check]
LAST = 1_000
"""Order of a check that declares none: after all checks of this project."""


@dataclass(frozen=True)
class RunCheck:
    """A check and its place in a verdict.

    Attributes:
        inspect: the check.
        order: verdicts list checks by increasing order.
    """

    inspect: Inspect
    order: int = LAST


def _as_check(component: object) -> RunCheck:
    """The check that an entry point names.

    Raises:
        TypeError: when it is neither a check nor a function.
    """
    if isinstance(component, RunCheck):
        return component
    if not callable(component):
        raise TypeError(f"must be a function of a run, found {type(component).__name__}")
    return RunCheck(component)


CHECKS: Registry[RunCheck] = Registry(
    "check", "privplan.checks", "privplan.verification.checks", _as_check
)


def register(name: str, order: int) -> Callable[[Inspect], Inspect]:
    """A decorator that registers a check under the name of its line in verdicts."""

    def decorate(inspect: Inspect) -> Inspect:
        CHECKS.register(name, RunCheck(inspect, order))
        return inspect

    return decorate


def run_checks(run: Run) -> list[Check]:
    """The lines of all registered checks, in their order."""
    ordered = sorted((check for _, check in CHECKS.items()), key=lambda check: check.order)
    return [check.inspect(run) for check in ordered]


def first(problems: Iterator[str], name: str, passed: str) -> Check:
    """A check that fails with the first problem, or passes with the given reason."""
    problem = next(problems, None)
    return Check(name=name, passed=problem is None, reason=problem or passed)


def at_round(run: Run, group: GroupPlan, release: ReleaseRecord) -> tuple[float, float]:
    """Planned sampling ratio and noise multiplier of a release.

    Releases after the last planned round have its values. The ratio is that of records where the
    plan protects records.
    """
    ratio, sigma = run.plan.at_round(group, min(release.round, run.plan.spec.rounds))
    of_records = group.record_sampling_ratio
    return (ratio if of_records is None else of_records), sigma


def stretches(run: Run, group: GroupPlan) -> dict[float, Shares]:
    """A group's releases by the sampling ratio that was planned for their round."""
    by_ratio: dict[float, Shares] = {}
    for release, share in run.shares(group.name):
        by_ratio.setdefault(at_round(run, group, release)[0], []).append((release, share))
    return by_ratio
