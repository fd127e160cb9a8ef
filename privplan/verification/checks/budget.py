"""The checks of what was spent: against the canaries, and against the budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.accounting.accountant import at_most
from privplan.auditing import exceeded
from privplan.verification.checks.check import (
    FALSE_ALARM,
    LAST,
    Check,
    failed,
    first,
    not_shown,
    register,
    unreleased,
)
from privplan.verification.realised import realised
from privplan.verification.run import Run


@register("audit", order=LAST + 1, false_alarm=FALSE_ALARM)
def audit(run: Run) -> Check:
    """The canaries are the run's, and no empirical bound exceeds realised epsilon.

    An attacker who tells canaries apart better than epsilon allows refutes the
    accountant or the training, whatever else a run shows. Canaries that cannot be told
    apart prove nothing.
    """
    name = "audit"
    evidence = run.audit
    if evidence is None:
        return not_shown(name, ["canaries"], required=False)
    groups = run.once(realised).groups
    uppers = {}
    for group in groups:
        if group.realised_upper is None:
            upper = math.inf
        else:
            upper = group.realised_upper
        uppers[group.group] = (upper, group.delta)
    if evidence.digest != run.record.audit:
        return failed(name, "the canaries' evidence is not what the run wrote")
    if (evidence.plan_digest, evidence.chain) != (run.plan.digest, run.ledger.chain):
        return failed(name, "the canaries are of another run")
    planned = run.record.configuration.get("canaries")
    if any(len(traces.included) != planned for traces in evidence.groups):
        return failed(
            name, f"each group must have the {planned} canaries of the record"
        )
    if sorted(traces.group for traces in evidence.groups) != sorted(uppers):
        return failed(name, "the canaries are not of each of the plan's groups once")
    canaries = sum(len(traces.included) for traces in evidence.groups)
    reason = f"{canaries} canaries lost no more, false alarms at most {FALSE_ALARM:g}"
    computed = {group.group: group.audit for group in groups}
    return first(exceeded(evidence, uppers, FALSE_ALARM, computed), name, reason)


@register("budget", order=LAST + 2)
def budget(run: Run) -> Check:
    """The realised epsilon of every group is within its budget.

    It is computed from the releases of the ledger alone, never from the plan, and
    rounded up.
    """
    if run.ledger.fault is not None:
        return not_shown("budget", ["the releases after the sound lines of the ledger"])
    reason = "every group is within its budget"
    return first(_overspent(run), "budget", reason, unreleased(run))


def _overspent(run: Run) -> Iterator[str]:
    """Groups above their budget.

    Yields:
        A line with epsilon, delta, law, relation and accountant of each.
    """
    for group in run.once(realised).groups:
        if group.kept:
            continue
        epsilon = "infinite"
        if group.realised_upper is not None:
            epsilon = at_most(group.realised_upper)
        yield (
            f"{group.group}: epsilon {epsilon} at delta {group.delta:.3g} "
            f"({group.sampling}, {group.relation}, {group.accountant}) exceeds the "
            f"budget {group.budget:g}"
        )
