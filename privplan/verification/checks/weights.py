"""The check that the weights of groups are the plan's, whoever takes part."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.plan import GroupPlan
from privplan.planning.factors import Rule, rule_of
from privplan.verification.checks import check
from privplan.verification.run import Run

# Relative rounding between two computations of a weight.
_ROUNDING = 1e-9


@check.register("weights", order=150)
def weights(run: Run) -> check.Check:
    """A group's weight is constant while its planned parameters are.

    It is that of the rule that the record names, where privplan knows the rule. What an
    own rule makes of noisy sums reveals no more of them, as long as it does not follow
    who takes part: a weight of one over the realised cohort would tell its size, which
    no release paid for.
    """
    executed = run.record.executed
    rule = None if executed is None else rule_of(executed.aggregator, run.plan)
    is_mixed = len(run.plan.spec.mixture) > 1

    def problems() -> Iterator[str]:
        """Rules that do not fit the law, and weights that change or are not planned."""
        if executed is not None:
            unmixes = executed.aggregator.startswith("unmixed, ")
            if is_mixed != unmixes:
                laws = run.plan.spec.laws
                yield f"aggregator {executed.aggregator} under {laws} sampling"
        for group in run.plan.groups:
            yield from _faults_of_group(run, group, rule)

    def missing() -> Iterator[str]:
        """Groups without releases, and a record that names no rule."""
        yield from check.unreleased(run)
        if executed is None or not executed.aggregator:
            yield "the aggregation rule in the record"

    reason = "the plan's, in every round"
    if executed is not None and rule is None:
        reason = (
            f"constant over the rounds; the aggregator {executed.aggregator} is no rule "
            "of the plan's"
        )
    return check.first(problems(), "weights", reason, missing())


def _faults_of_group(run: Run, group: GroupPlan, rule: Rule | None) -> Iterator[str]:
    """Weights of a group that differ between rounds of one ratio and noise.

    Args:
        run: with plan and ledger.
        group: whose weights are compared.
        rule: that gives the planned weight; None where privplan does not know it.
    """
    weight_of_parameters: dict[tuple[float, float], float] = {}
    for release, share in run.shares(group.name):
        where = f"round {release.round}, {group.name}: weight {share.factor:.6g}"
        parameters = check.at_round(run, group, release)
        earlier = weight_of_parameters.setdefault(parameters, share.factor)
        if not math.isclose(share.factor, earlier, rel_tol=_ROUNDING):
            yield f"{where}, {earlier:.6g} in an earlier round of the same plan"
        if rule is None:
            continue
        round_ = min(release.round, run.plan.spec.rounds)
        planned = _planned_weight(run, group, rule, round_)
        if not math.isclose(share.factor, planned, rel_tol=_ROUNDING):
            yield f"{where}, planned {planned:.6g}"


def _planned_weight(run: Run, group: GroupPlan, rule: Rule, round_: int) -> float:
    """The weight of a group by the rule, with the cohort expected in a round.

    Args:
        run: with the plan.
        group: of it.
        rule: that the record names.
        round_: from 1, as ratios may change between rounds.
    """
    ratio, _ = run.plan.at_round(group, round_)
    cohort = ratio * run.plan.law_of(group).law.drawable(group.clients)
    return rule(group.model_copy(update={"expected_cohort": cohort}), run.plan)
