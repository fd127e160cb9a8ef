"""What a choice of the best of several runs costs, and what it leaves for one run.

By the bound of Papernot and Steinke on the release of the best run, whose number of
repetitions is random; see ``privplan.contrib.private_tuning.selection``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from privplan.accounting.release import History, Relation
from privplan.contrib.private_tuning.selection import epsilon_of_selection
from privplan.errors import Fault, InfeasibleError, InputError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.values import Checked, Positive, is_none, parse, rule

# Largest share of a budget that the search leaves unspent.
_CLOSE = 0.005
# The search takes some five steps; after so many there is no noise that fits.
_STEPS = 30
# The share of a budget for the first run that is tried.
_FIRST_SHARE = 0.5
# A step changes a share at most by this factor: up, and down by its inverse.
_LARGEST_FACTOR = 2.0
# Exponent of the bound of a run in the bound of the best: it grows faster than a run's.
_GROWTH = 0.9


class PrivateTuning(Checked):
    """Training is repeated a random number of times, and the best run is released."""

    runs: Annotated[Positive, Field(ge=1, le=1e6)] = Field(
        description="Mean number of runs over all recipes that are tried (K)."
    )
    law: Literal["poisson", "geometric", "truncated_negative_binomial"] = Field(
        "poisson", description="Law of the number of runs."
    )
    shape: Positive | None = Field(
        None,
        exclude_if=is_none,
        description="Shape eta of truncated_negative_binomial; 0.5 when left out.",
    )

    @rule
    def _numbers(self) -> Iterator[Fault]:
        if self.shape is not None and self.law != "truncated_negative_binomial":
            yield Fault(
                "shape", "is only for law: truncated_negative_binomial", self.shape
            )
        if self.runs == 1 and self.law != "poisson":
            yield Fault(
                "runs", f"must be greater than 1 for law: {self.law}", self.runs
            )

    def epsilon(self, history: History, delta: float, relation: Relation) -> float:
        """Upper bound on the epsilon of the best of all runs."""
        eta = {"poisson": math.inf, "geometric": 1.0}.get(self.law, self.shape or 0.5)
        return epsilon_of_selection(history, delta, relation, mean=self.runs, shape=eta)


def selected(plan: Plan, history: History, delta: float) -> float:
    """Upper bound on epsilon of the best run of a stored plan with ``tuning``."""
    stated = plan.removed.get(("tuning",))
    if stated is None:
        raise InputError.one(
            "spec.tuning", "is required for a guarantee by selection", "nothing"
        )
    return parse(PrivateTuning, stated).epsilon(
        history, delta, Relation(plan.spec.relation)
    )


@dataclass(frozen=True)
class GroupCost:
    """What is left of a group's budget for a run.

    Attributes:
        group: name of the group.
        budget: epsilon for the best of all runs.
        left: epsilon of a run, which is to be the group's budget in the spec of a run.
        best: upper bound on epsilon of the best of all such runs.
        whole: the same where each run spends the whole budget.
        delta: failure probability.
    """

    group: str
    budget: float
    left: float
    best: float
    whole: float
    delta: float


def costs(spec: Spec, tuning: PrivateTuning) -> list[GroupCost]:
    """What is left of a spec's budgets for a run, of which the best is released.

    Raises:
        InputError: for a spec of records, or groups without an epsilon.
        InfeasibleError: when no noise keeps the budgets over all runs.
    """
    if spec.unit != "client":
        raise InputError.one("unit", "must be client", spec.unit)
    for group in spec.groups:
        if group.risk is not None or group.noise_multiplier is not None:
            rule = "must have an epsilon, no risk and no noise multiplier"
            raise InputError.one(f"groups.{group.name}", rule, group.name)
    # A plan that leaves a budget unspent does not tell what selection takes of it.
    planning = spec.planning.model_copy(update={"slack": 0.0})
    spec = spec.model_copy(update={"planning": planning})
    deltas = {group.name: spec.delta_of(group) for group in spec.groups}
    shares = dict.fromkeys(deltas, _FIRST_SHARE)
    whole = _best(solve(spec, second_opinion=False), tuning)
    group_costs: list[GroupCost] = []
    for _ in range(_STEPS):
        reduced = _reduced(spec, shares, deltas)
        best = _best(solve(reduced, second_opinion=False), tuning)
        spent = {group.name: best[group.name] / group.epsilon for group in spec.groups}
        if max(spent.values()) <= 1:
            group_costs = [
                GroupCost(
                    group=group.name,
                    budget=group.epsilon,
                    left=of_run.epsilon,
                    best=best[group.name],
                    whole=whole[group.name],
                    delta=deltas[group.name],
                )
                for group, of_run in zip(spec.groups, reduced.groups, strict=True)
            ]
            if min(spent.values()) >= 1 - _CLOSE:
                break
        # Towards the middle of what may stay unspent.
        for name, share in spent.items():
            factor = ((1 - _CLOSE / 2) / share) ** _GROWTH
            factor = min(_LARGEST_FACTOR, max(1 / _LARGEST_FACTOR, factor))
            shares[name] *= factor
    if not group_costs:
        raise InfeasibleError(
            "runs: no noise was found that keeps the budgets over all runs"
        )
    return group_costs


def _reduced(
    spec: Spec, shares: Mapping[str, float], deltas: Mapping[str, float]
) -> Spec:
    """The spec of a run that spends these shares of the epsilons."""
    groups = [
        group.model_copy(
            update={
                "epsilon": group.epsilon * shares[group.name],
                "delta": deltas[group.name],
            }
        )
        for group in spec.groups
    ]
    return spec.model_copy(update={"groups": tuple(groups)})


def _best(plan: Plan, tuning: PrivateTuning) -> dict[str, float]:
    """Upper bound on epsilon of the best of all runs of a plan, by group."""
    relation = Relation(plan.spec.relation)
    return {
        group.name: tuning.epsilon(plan.history(group), group.delta, relation)
        for group in plan.groups
    }
