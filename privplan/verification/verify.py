"""From a plan and the ledger of a run to a verdict: what was really spent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Literal

from privplan.accounting.accountant import accountant
from privplan.accounting.release import Relation, SamplingLaw
from privplan.auditing.findings import AuditEvidence, Finding, exceeded, findings
from privplan.errors import InputError
from privplan.io.files import write_text
from privplan.plan import GroupPlan, Plan
from privplan.record import LEDGER, PLAN, VERDICT, RunRecord, history_of, read_ledger
from privplan.values import Value
from privplan.verification.checks.check import Check, Run, first
from privplan.verification.checks.registry import CHECKS
from privplan.verification.statistics import FALSE_ALARM
from privplan.verification.worst_client import most_exposed

GUARANTEE = "pld"


class GroupVerdict(Value):
    """What one group's clients spent, beside what they were promised.

    Epsilon is None where it is infinite. ``realised_lower`` and ``realised_upper`` are by the
    own PLD accountant, from the ledger alone; ``realised_rdp`` is an independent upper bound.

    Attributes:
        budget: epsilon that the group must not exceed at ``delta``.
        planned: upper bound on epsilon that the plan certified.
        realised_lower: what the group's worst-off client spent at least.
        headroom: budget minus realised upper bound.
        audit: what canaries say was spent at least; empty in a run without canaries.
    """

    group: str
    clients: int
    budget: float
    planned: float | None
    realised_lower: float | None
    realised_upper: float | None
    realised_rdp: float | None
    delta: float
    headroom: float | None
    sampling: SamplingLaw
    relation: Relation
    accountant: str
    kept: bool
    accuracy: float | None
    audit: tuple[Finding, ...] = ()


class WorstOff(Value):
    """The client who spent the largest part of its budget; epsilon is None where infinite.

    Attributes:
        group: the client's group.
        client: its position in the group, where clients of a group differ; None where all of
            them are exposed alike.
    """

    group: str
    client: int | None
    budget: float
    planned: float | None
    realised_lower: float | None
    realised_upper: float | None
    delta: float
    headroom: float | None
    sampling: SamplingLaw
    relation: Relation
    accountant: str


class Verdict(Value):
    """Whether a run kept its plan's promise, and if not, how it broke it."""

    schema_version: Literal[1] = 1
    kept: bool
    algorithm: str
    dataset: str
    groups: tuple[GroupVerdict, ...]
    worst: WorstOff
    checks: tuple[Check, ...]
    accuracy: float | None
    accuracy_by_class: dict[str, float]

    def save(self, folder: Path) -> None:
        """Write ``verdict.json`` into the run folder."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False)
        write_text(folder / VERDICT, text + "\n")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _group_verdict(run: Run, group: GroupPlan) -> tuple[GroupVerdict, WorstOff]:
    """What a group spent at most, and what its worst-off client did."""
    relation = Relation(run.plan.spec.relation)
    history = history_of(run.ledger.records, group.name)
    client, own = most_exposed(run.ledger.records, group.name)
    spent = accountant(GUARANTEE).epsilon(history, group.delta, relation)
    most = spent if own == history else accountant(GUARANTEE).epsilon(own, group.delta, relation)
    rdp = accountant("rdp")
    second = (
        math.inf
        if rdp.why_not(history, relation)
        else rdp.epsilon(history, group.delta, relation).upper
    )
    certified = [row for row in run.plan.certificate if row.guarantee and row.group == group.name]
    promised = {
        "group": group.name,
        "budget": group.epsilon,
        "planned": certified[0].epsilon_upper if certified else None,
        "realised_lower": _finite(most.lower),
        "delta": group.delta,
        "sampling": run.plan.spec.sampling,
        "relation": relation,
        "accountant": GUARANTEE,
    }
    verdict = GroupVerdict(
        **promised,
        clients=group.clients,
        realised_upper=_finite(spent.upper),
        realised_rdp=_finite(second),
        headroom=_finite(group.epsilon - spent.upper),
        kept=spent.upper <= group.epsilon,
        accuracy=run.record.accuracy_by_group.get(group.name),
        audit=_findings(run, group),
    )
    worst = WorstOff(
        **promised,
        client=client,
        realised_upper=_finite(most.upper),
        headroom=_finite(group.epsilon - most.upper),
    )
    return verdict, worst


def _findings(run: Run, group: GroupPlan) -> tuple[Finding, ...]:
    if run.audit is None:
        return ()
    found = [traces for traces in run.audit.groups if traces.group == group.name]
    return findings(found[0], group.delta) if found else ()


def _used(worst: WorstOff) -> float:
    """Part of the budget that was spent."""
    return _or_infinite(worst.realised_upper) / worst.budget


def _budget_check(groups: list[GroupVerdict]) -> Check:
    over = [verdict for verdict in groups if not verdict.kept]
    if not over:
        return Check(name="budget", passed=True, reason="every group is within its budget")
    worst = over[0]
    found = "infinite" if worst.realised_upper is None else f"{worst.realised_upper:.4g}"
    reason = (
        f"{worst.group}: epsilon {found} at delta {worst.delta:.3g} ({worst.sampling}, "
        f"{worst.relation}, {worst.accountant}) exceeds the budget {worst.budget:g}"
    )
    return Check(name="budget", passed=False, reason=reason)


def _audit_check(run: Run, groups: list[GroupVerdict]) -> Check:
    """Canaries lost no more than was released, and the evidence of them is the run's own."""
    name, evidence = "audit", run.audit
    if evidence is None:
        return Check(name=name, passed=True, reason="the run had no canaries")
    known = {group.group: (_or_infinite(group.realised_upper), group.delta) for group in groups}
    if evidence.digest != run.record.audit:
        reason = "the canaries' evidence is not what the run wrote"
    elif {traces.group for traces in evidence.groups} != set(known):
        reason = "the canaries are of other groups than the plan's"
    else:
        canaries = sum(len(traces.included) for traces in evidence.groups)
        well = f"{canaries} canaries lost no more, false alarms at most {FALSE_ALARM:g}"
        return first(exceeded(evidence, known), name, well)
    return Check(name=name, passed=False, reason=reason)


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def judge(run: Run) -> Verdict:
    """The verdict on a run.

    Epsilon is recomputed from the ledger alone; the plan is only what it is compared with.
    """
    found = [_group_verdict(run, group) for group in run.plan.groups]
    groups = [verdict for verdict, _ in found]
    checks = [
        *(check(run) for check in CHECKS),
        _audit_check(run, groups),
        _budget_check(groups),
    ]
    return Verdict(
        kept=all(check.passed for check in checks),
        algorithm=run.record.algorithm,
        dataset=run.record.dataset,
        groups=tuple(groups),
        worst=max((worst for _, worst in found), key=_used),
        checks=tuple(checks),
        accuracy=run.record.accuracy,
        accuracy_by_class=run.record.accuracy_by_class,
    )


def _cure(record: RunRecord) -> str:
    """What to do about a last line that was cut off."""
    if record.status == "running":
        return "resume the run"
    return "the run was finished, so what is lost cannot be recovered; run it in another folder"


def load_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        InputError: when it is not a run folder, or the ledger's last line is torn.
    """
    if not folder.is_dir():
        raise InputError.one("run", "must be a run folder", str(folder))
    plan = Plan.load(folder / PLAN)
    ledger = read_ledger(folder, plan.digest)
    record = RunRecord.load(folder)
    if ledger.torn:
        rule = (
            f"{ledger.fault}; {len(ledger.records)} releases before it are sound; {_cure(record)}"
        )
        raise InputError.one("ledger", rule, str(folder / LEDGER))
    evidence = AuditEvidence.load(folder) if record.audit else None
    return Run(plan=plan, ledger=ledger, record=record, audit=evidence)
