"""A line of a verdict, the run that it is about, and the plan of a round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privplan.auditing.findings import AuditEvidence
from privplan.plan import GroupPlan, Plan
from privplan.record import GroupShare, LedgerText, ReleaseRecord, RunRecord
from privplan.values import Value

Shares = list[tuple[ReleaseRecord, GroupShare]]


class Check(Value):
    """One line of a verdict."""

    name: str
    passed: bool
    reason: str


@dataclass(frozen=True)
class Run:
    """What a verdict is made from: the executed plan, the ledger, the record, the canaries."""

    plan: Plan
    ledger: LedgerText
    record: RunRecord
    audit: AuditEvidence | None = None

    def shares(self, group: str) -> Shares:
        """Every release that a group took part in, with its share."""
        pairs = ((release, share) for release in self.ledger.records for share in release.shares)
        return [(release, share) for release, share in pairs if share.group == group]


def first(problems: Iterator[str], name: str, well: str) -> Check:
    """The check that fails with the first problem, or passes with the words for all well."""
    found = next(problems, None)
    return Check(name=name, passed=found is None, reason=found or well)


def at_round(run: Run, group: GroupPlan, release: ReleaseRecord) -> tuple[float, float]:
    """Planned ratio and noise multiplier of a release; those of the last round beyond it.

    The ratio is that of records where the plan protects records.
    """
    ratio, sigma = run.plan.at_round(group, min(release.round, run.plan.spec.rounds))
    own = group.record_sampling_ratio
    return (ratio if own is None else own), sigma


def stretches(run: Run, group: GroupPlan) -> dict[float, Shares]:
    """A group's releases by the ratio that was planned for their round."""
    found: dict[float, Shares] = {}
    for release, share in run.shares(group.name):
        found.setdefault(at_round(run, group, release)[0], []).append((release, share))
    return found
