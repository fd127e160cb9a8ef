"""Budgets that a plan leaves unspent, and why."""

from __future__ import annotations

from dataclasses import replace

from privplan.accounting.accountant import at_most
from privplan.accounting.calibrate import MOST_ROUNDS, least_certified
from privplan.plan import GroupPlan, Plan
from privplan.planning.choices import slack_of, task_of
from privplan.planning.noise_jumps import covered_ratio
from privplan.planning.problem import problem_of, provisioned_noise_multiplier
from privplan.planning.search import estimated
from privplan.spec.planning import is_objective

MOST_GROUPS = 12  # that are explained each by itself; no reader looks through more
ENOUGH = 0.9  # share of a budget below which a plan says why the rest stays unspent
# Noise multipliers are rounded up, so that the smallest is met to this factor.
_SAME_NOISE = 1.001


def unspent_lines(plan: Plan) -> list[str]:
    """One line per group that spends less than 90% of its epsilon, with the reason.

    With fixed noise the epsilon that states a risk is not a budget of its own.
    """
    lines: list[str] = []
    for group, stated in zip(plan.groups, plan.spec.groups, strict=True):
        if stated.risk is not None and stated.noise_multiplier is not None:
            continue
        rows = [row for row in plan.certificate if row.group == group.name]
        guaranteed = [row.epsilon_upper for row in rows if row.guarantee]
        spent = max(guaranteed, default=0.0)
        if spent >= ENOUGH * group.epsilon:
            continue
        spent_by_accountant = {row.accountant: row.epsilon_upper for row in rows}
        reason = _reason(plan, group, stated.noise_multiplier, spent_by_accountant)
        lines.append(
            f"groups.{group.name}.epsilon: {at_most(spent, 4)} of {group.epsilon:.4g} is "
            f"spent, {1 - spent / group.epsilon:.0%} is left: {reason}"
        )
    hidden = len(lines) - MOST_GROUPS
    if hidden > 0:
        return [*lines[:MOST_GROUPS], f"groups: {hidden} more leave epsilon, too"]
    return lines


def _reason(
    plan: Plan,
    group: GroupPlan,
    fixed_noise: float | None,
    spent: dict[str, float],
) -> str:
    """Why a group leaves budget; ``spent`` is its epsilon by each accountant."""
    planning = plan.spec.planning
    rounds = plan.spec.rounds
    if fixed_noise is not None:
        reason = f"its noise multiplier is fixed at {fixed_noise:g}"
        if rounds == MOST_ROUNDS:
            reason += f", and more than {MOST_ROUNDS} rounds are not planned"
        return reason

    # The accountant that calibrates may have a looser bound, which is used up.
    calibrating = spent.get(planning.accountant, 0.0)
    uses_up = calibrating >= ENOUGH * group.epsilon or calibrating == 0
    if planning.accountant != "pld" and uses_up:
        tables = ""
        if planning.calibration == "published":
            tables = ", as the published tables are"
        return (
            f"the noise is calibrated by {planning.accountant}{tables}, whose bound is "
            "looser than pld's; planning.accountant: pld spends it"
        )

    law = plan.law_of(group)
    chances = law.law.rounds_of_client(rounds) * group.contributions
    if group.sampling_ratio <= covered_ratio(group.delta, chances):
        return (
            f"delta {group.delta:.3g} covers the chance that a client ever takes part, so "
            "any noise keeps the budget, and less than this is not certified"
        )
    smallest_noise = least_certified(law, plan.spec.relation)
    if group.noise_multiplier <= _SAME_NOISE * smallest_noise:
        noise = group.noise_multiplier
        return f"less noise than {noise:.4g} is neither certified nor planned"
    if is_objective(planning.ratios) and slack_of(plan.spec) > 0:
        return f"all that is left would lower the noise by {_bought(plan):.1%}"
    if plan.release == "joint":
        share = group.clients / plan.spec.population
        return (
            f"it has a weight of {group.weight:.3g} for {share:.3g} of the clients, and in "
            "one sum of all groups less noise would mean more weight"
        )
    return "no smaller noise multiplier keeps the budget under this sampling law"


def _bought(plan: Plan) -> float:
    """What the budgets that a plan leaves would buy: a relative fall of its noise."""
    spec = plan.spec
    task = replace(task_of(spec, problem_of(spec)), slack=0.0)
    noise = provisioned_noise_multiplier(spec, estimated(task))
    return max(1 - noise * spec.clipping_norm / plan.mean_noise_std, 0.0)
