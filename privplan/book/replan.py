"""Planning from a book: a plan whose releases, composed with past ones, keep the budgets.

The epsilon of a group in the spec is the budget of its clients over all runs. The plan is solved
for a smaller epsilon, the allotment of the run, until the plan's releases composed with those in
the book come close to the budget from below. The next allotment is computed in the Gaussian
limit, in which squares of mu add up; whether a plan is accepted is decided by the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.release import History, Relation
from privplan.book.entry import BookedRun
from privplan.book.spending import Account, account_of, groups_of
from privplan.errors import InfeasibleError, InputError
from privplan.plan import GroupPlan, Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

LEAST_SHARE = 0.05
"""Smallest allotment, as a part of the budget; below it the budget counts as spent."""
_MARGIN = 5e-4
_CLOSE = 1 - 2e-3
_ENOUGH = 3
_MOST_SOLVES = 10


def solve_from_book(
    spec: Spec,
    runs: Sequence[BookedRun],
    *,
    population: str = "",
    second_opinion: bool | None = None,
) -> Plan:
    """The plan of a spec within the remaining part of its budgets.

    Args:
        spec: the problem; each group's epsilon is its budget over all runs.
        runs: the book.
        population: name of the population of the spec's groups.
        second_opinion: as in ``planning.solve``.

    Returns:
        A plan whose groups have the run's allotments as epsilon, and whose warnings give the
        composed epsilon.

    Raises:
        InputError: when past releases of a group have another relation or unit than the plan.
        InfeasibleError: when past releases leave no room for a plan, or none is found.
    """
    accounts = _accounts(spec, runs, population)
    plan = requested = solve(spec, second_opinion=second_opinion)
    budgets = {group.name: group.epsilon for group in requested.groups}
    if not set(accounts) <= set(budgets):
        raise InputError.one("groups", "must keep their names to plan from a book", list(budgets))
    allotted = dict(budgets)
    for attempt in range(_MOST_SOLVES):
        after = _after(plan, accounts)
        fits = all(after[name] <= budgets[name] for name in accounts)
        used = all(
            after[name] >= _CLOSE * budgets[name] or allotted[name] == budgets[name]
            for name in accounts
        )
        if fits and (used or attempt >= _ENOUGH):
            return _noted(plan, accounts, budgets, after, runs, population)
        aim = 1 - _MARGIN * 2**attempt  # noise on a grid needs more margin
        goals = {name: aim * budgets[name] for name in accounts}
        allotted = _next(plan, requested, accounts, allotted, goals, after)
        plan = solve(_with_budgets(spec, allotted), second_opinion=second_opinion)
    names = ", ".join(accounts)
    raise InfeasibleError(f"{names}: no plan found within what the book leaves of the budgets")


def _accounts(spec: Spec, runs: Sequence[BookedRun], population: str) -> dict[str, Account]:
    """The accounts of the spec's groups that are in the book."""
    known = {name for _, name in groups_of(runs, population)}
    accounts = {}
    for group in spec.groups:
        if group.name not in known:
            continue
        account = account_of(runs, population, group.name)
        for field, past, planned in (
            ("relation", account.relation, Relation(spec.relation)),
            ("unit", account.unit, spec.unit),
        ):
            if past != planned:
                rule = f"must be {past}, as in the book for group {group.name}"
                raise InputError.one(field, rule, str(planned))
        accounts[group.name] = account
    return accounts


def _after(plan: Plan, accounts: Mapping[str, Account]) -> dict[str, float]:
    """Upper bound on each group's epsilon over the book and the plan, composed."""
    groups = {group.name: group for group in plan.groups}
    return {
        name: account.composed(plan.history(groups[name]), groups[name].delta).upper
        for name, account in accounts.items()
    }


def _next(
    plan: Plan,
    requested: Plan,
    accounts: Mapping[str, Account],
    allotted: Mapping[str, float],
    goals: Mapping[str, float],
    after: Mapping[str, float],
) -> dict[str, float]:
    """The next allotments; those of groups without past releases do not change.

    Raises:
        InfeasibleError: when one falls below ``LEAST_SHARE`` of its budget.
    """
    allotments = dict(allotted)
    for name, account in accounts.items():
        delta = plan.group(name).delta
        square = _square(allotted[name], delta) + _square(goals[name], delta)
        square -= _square(after[name], delta)
        share = epsilon_of(math.sqrt(square), delta) if square > 0 else 0.0
        budget = requested.group(name)
        if share < LEAST_SHARE * budget.epsilon:
            raise InfeasibleError(_refusal(requested, budget, account))
        allotments[name] = min(share, budget.epsilon)
    return allotments


def _square(epsilon: float, delta: float) -> float:
    """mu^2 of the Gaussian mechanism with this epsilon at delta."""
    if epsilon <= 0:
        return 0.0
    return mu_of(epsilon, delta) ** 2 if math.isfinite(epsilon) else math.inf


def _with_budgets(spec: Spec, allotted: Mapping[str, float]) -> Spec:
    groups = tuple(
        group.model_copy(update={"epsilon": allotted[group.name]}) for group in spec.groups
    )
    return spec.model_copy(update={"groups": groups})


def _refusal(requested: Plan, group: GroupPlan, account: Account) -> str:
    """Error message with spent, planned and total epsilon, and the nearest feasible budget."""
    planned = requested.history(group)
    spent = account.composed(History(), group.delta).upper
    total = account.composed(planned, group.delta).upper
    own = next(
        (
            row.epsilon_upper
            for row in requested.certificate
            if row.guarantee and row.group == group.name
        ),
        group.epsilon,
    )
    nearest = math.ceil(total * 1e3) / 1e3 if math.isfinite(total) else math.inf
    return (
        f"{account.where}: the book holds epsilon {spent:.6g} of the budget {group.epsilon:g}, "
        f"which leaves less than {LEAST_SHARE:.0%} of it to a run; the plan would add "
        f"{own:.6g} and come to {total:.6g} in all; nearest feasible budget {nearest:g} "
        f"({account.cell(planned, group.delta)})"
    )


def _noted(
    plan: Plan,
    accounts: Mapping[str, Account],
    budgets: Mapping[str, float],
    after: Mapping[str, float],
    runs: Sequence[BookedRun],
    population: str,
) -> Plan:
    """The plan with one warning per group about its past releases."""
    lines = []
    for group in plan.groups:
        account = accounts.get(group.name)
        if account is None:
            lines.append(f"{group.name}: the book holds nothing of this group")
            continue
        lines.append(
            f"{account.where}: of {budgets[group.name]:g} over all runs, this run may spend "
            f"{group.epsilon:.6g} by itself; with the {len(account.histories)} in the book it "
            f"comes to {after[group.name]:.6g} "
            f"({account.cell(plan.history(group), group.delta)})"
        )
    return plan.model_copy(update={"warnings": (*plan.warnings, *lines)})
