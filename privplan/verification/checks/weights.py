"""That the factors on the sums are constants, and those that the plan's rule gives."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.plan import GroupPlan
from privplan.planning.weights import RULES, Rule
from privplan.record import ReleaseRecord
from privplan.verification.checks.check import Check, Run, at_round, first


def weights(run: Run) -> Check:
    """A group's factor stays the same while its plan does, whoever takes part.

    Where the record names a rule that is known, the factor is also what the rule gives.
    """
    rule = _rule(run)

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            seen: dict[tuple[float, float], float] = {}
            for release, share in run.shares(group.name):
                where = f"round {release.round}, {group.name}: weight {share.weight:.6g}"
                before = seen.setdefault(at_round(run, group, release), share.weight)
                if not math.isclose(share.weight, before, rel_tol=1e-9):
                    yield f"{where}, {before:.6g} in an earlier round of the same plan"
                expected = share.weight
                if rule is not None:
                    expected = rule(_in_round(run, group, release), run.plan)
                if not math.isclose(share.weight, expected, rel_tol=1e-9):
                    yield f"{where}, planned {expected:.6g}"

    well = "constant over the rounds" if rule is None else "the plan's, in every round"
    return first(problems(), "weights", well)


def _rule(run: Run) -> Rule | None:
    if run.record.executed is None:
        return None
    return RULES.get(run.record.executed.aggregator.rpartition(", ")[2])


def _in_round(run: Run, group: GroupPlan, release: ReleaseRecord) -> GroupPlan:
    ratio, _ = run.plan.at_round(group, min(release.round, run.plan.spec.rounds))
    return group.model_copy(update={"expected_cohort": ratio * group.clients})
