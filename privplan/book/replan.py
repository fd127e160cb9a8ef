"""Planning from a book: a plan whose releases, composed with past ones, keep the budgets.

The epsilon of a group in the spec is the budget of its clients over all runs. The plan is solved
for a smaller epsilon, the allotment of the run, until the plan's releases and those in the book
come close to the budget from below, under the rule by which the group's runs are composed
(``rules``). The next allotment is computed in the Gaussian limit, in which squares of mu add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from privplan.accounting.accountant import at_most
from privplan.accounting.gdp import epsilon_of, largest_affordable, mu_of
from privplan.accounting.release import History, Relation
from privplan.book import spending
from privplan.book.accounts import Budgets, has_accounts
from privplan.book.entry import BookedRun
from privplan.book.store import address_of, has_runs, runs
from privplan.errors import InfeasibleError, InputError, UnsupportedError
from privplan.plan import BookBudget, GroupPlan, Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

LEAST_SHARE = (
    0.05  # smallest allotment over the budget; below it the budget counts as spent
)
_MARGIN = 5e-4
_CLOSE = 1 - 2e-3
_SPENT = 0.97  # of its allotment: a group whose budget does not bind spends less
_ENOUGH = 3
_MOST_SOLVES = 10
_TOLERANCE = 1e-4


def solve_at(
    spec: Spec,
    address: str,
    population: str = "",
    rule: spending.BookRule | None = None,
) -> Plan:
    """``solve_from_book`` with the runs and the budget accounts of the book at an address."""
    limits: dict[str, list[spending.Composition]] = {}
    if has_accounts(address):
        budgets = Budgets(address)
        names = [group.name for group in spec.groups]
        limits = {
            name: budgets.limits(spending.full_name(population, name)) for name in names
        }
    url = address_of(address)
    past = () if any(limits.values()) and not has_runs(url) else runs(url)
    return solve_from_book(spec, past, population=population, rule=rule, limits=limits)


def solve_from_book(
    spec: Spec,
    past: Sequence[BookedRun],
    *,
    population: str = "",
    rule: spending.BookRule | None = None,
    limits: Mapping[str, Sequence[spending.Composition]] | None = None,
) -> Plan:
    """The plan of a spec within the remaining part of its budgets."""
    accounts = _accounts(spec, past, population)
    plan = requested = solve(spec)
    budgets = {group.name: group.epsilon for group in requested.groups}
    if not set(accounts) <= set(budgets):
        raise InputError.one(
            "groups", "must keep their names to plan from a book", list(budgets)
        )
    bounds: dict[str, list[spending.Composition]] = {}
    for group in requested.groups:
        own = _limits(spec, group, rule, limits or {})
        account = accounts.get(group.name)
        if account is not None:
            under = own[0].rule if own else rule
            own = [
                replace(one, past=account.history) for one in own
            ]  # which it may not hold
            own.insert(
                0, spending.composition_of(account, group.epsilon, group.delta, under)
            )
        if own:
            bounds[group.name] = own
    allotted = dict(budgets)
    for attempt in range(_MOST_SOLVES):
        after = {name: plan.history(plan.group(name)) for name in bounds}
        fits = all(one.fits(after[name]) for name in bounds for one in bounds[name])
        # what the run spends by the accountant that planned it; else by that of the guarantee
        planned = (spec.planning.accountant, plan.guarantee)
        rows = sorted(plan.certificate, key=lambda row: row.accountant == planned[0])
        alone = {
            row.group: row.epsilon_upper for row in rows if row.accountant in planned
        }
        idle = [name for name in bounds if alone[name] < _SPENT * allotted[name]]
        most = {  # what it may spend, with no more than the rest of its budget beyond what it does
            name: min(
                alone[name] + one.budget - one.epsilon(after[name])
                for one in bounds[name]
            )
            for name in idle
        }
        used = all(
            allotted[name] * _CLOSE <= most[name]
            if name in idle
            else allotted[name] == budgets[name]
            or any(
                one.epsilon(after[name]) >= _CLOSE * one.budget for one in bounds[name]
            )
            for name in bounds
        )
        if fits and (used or attempt >= _ENOUGH):
            return _noted(plan, bounds, accounts, population)
        aim = 1 - _MARGIN * 2**attempt  # noise on a grid needs more margin
        allotted = _next(plan, requested, bounds, allotted, aim)
        if fits:
            allotted |= {name: min(allotted[name], most[name]) for name in idle}
        groups = tuple(
            g.model_copy(update={"epsilon": allotted[g.name]}) for g in spec.groups
        )
        plan = solve(spec.model_copy(update={"groups": groups}))
    names = ", ".join(bounds)
    raise InfeasibleError(
        f"{names}: no plan found within what the book leaves of the budgets"
    )


def _accounts(
    spec: Spec, runs: Sequence[BookedRun], population: str
) -> dict[str, spending.Account]:
    """The past releases of the spec's groups that are in the book."""
    known = {name for _, name in spending.groups_of(runs, population)}
    accounts = {}
    for group in spec.groups:
        if group.name not in known:
            continue
        account = spending.account_of(runs, population, group.name)
        for field, past, planned in (
            ("relation", account.relation, Relation(spec.relation)),
            ("unit", account.unit, spec.unit),
        ):
            if past != planned:
                rule = f"must be {past}, as in the book for group {group.name}"
                raise InputError.one(field, rule, str(planned))
        accounts[group.name] = account
    return accounts


def _limits(
    spec: Spec,
    group: GroupPlan,
    rule: spending.BookRule | None,
    limits: Mapping[str, Sequence[spending.Composition]],
) -> list[spending.Composition]:
    """The budget account of a group and its ceilings."""
    found = list(limits.get(group.name, ()))
    for one in found[:1]:
        for field, of_account, given in (
            ("rule", one.rule, rule or one.rule),
            ("relation", one.relation, Relation(spec.relation)),
        ):
            if of_account != given:
                text = f"must be {of_account}, as of the account {one.where}"
                raise InputError.one(field, text, str(given))
    return found


def _next(
    plan: Plan,
    requested: Plan,
    bounds: Mapping[str, Sequence[spending.Composition]],
    allotted: Mapping[str, float],
    aim: float,
) -> dict[str, float]:
    """The next allotments; those of groups without bounds do not change."""
    allotments = dict(allotted)
    for name, compositions in bounds.items():
        group, budget = plan.group(name), requested.group(name)
        history, now = plan.history(group), _square(allotted[name], group.delta)
        squares = [_next_square(one, history, now, aim) for one in compositions]
        square = min(squares)
        share = epsilon_of(math.sqrt(square), group.delta) if square > 0 else 0.0
        if share < LEAST_SHARE * budget.epsilon:
            raise InfeasibleError(
                _refusal(requested, budget, compositions[squares.index(square)])
            )
        allotments[name] = min(share, budget.epsilon)
    return allotments


def _next_square(
    one: spending.Composition, history: History, now: float, aim: float
) -> float:
    """mu^2 of the next allotment; under a filter from the noise that takes its part of the rest."""
    share = one.share(history)
    if share is None:
        return (
            now
            + _square(aim * one.budget, one.delta)
            - _square(one.epsilon(history), one.delta)
        )
    if share == math.inf and one.share(History()) != 0:  # nothing is left
        return 0.0
    found = largest_affordable(
        lambda x: min(one.share(spending.scaled(history, math.exp(-x))) or 0.0, 1e300), aim,
        start=0.0, low=-10.0, high=5.0, tolerance=_TOLERANCE,
    )  # fmt: skip
    if found is None:
        return 0.0
    factors = 1.0, math.exp(-found)
    before, after = (
        _square(one.alone(spending.scaled(history, by)), one.delta) for by in factors
    )
    return now * after / before if before > 0 else math.inf


def _square(epsilon: float, delta: float) -> float:
    """mu^2 of the Gaussian mechanism with this epsilon at delta."""
    if epsilon <= 0:
        return 0.0
    return mu_of(epsilon, delta) ** 2 if math.isfinite(epsilon) else math.inf


def _refusal(requested: Plan, group: GroupPlan, past: spending.Composition) -> str:
    """Error message with spent, planned and total epsilon, and the nearest feasible budget."""
    planned = requested.history(group)
    spent, total = past.epsilon(History()), past.epsilon(planned)
    rows = [
        row
        for row in requested.certificate
        if row.guarantee and row.group == group.name
    ]
    own = rows[0].epsilon_upper if rows else group.epsilon
    exactly = nearest = ""
    if past.rule == "exact" and math.isfinite(
        total
    ):  # a filter has another order at another
        nearest = f"; nearest feasible budget {math.ceil(total * 1e3) / 1e3:g}"
    elif past.rule != "exact" and not past.units:
        bound = past.exact().epsilon(History())
        exactly = f" ({at_most(bound, 6)} if all runs were fixed before any result: --rule exact)"
    return (
        f"{past.where}: the book counts epsilon {at_most(spent, 6)} of the budget {past.budget:g}"
        f"{exactly}, which leaves less than {LEAST_SHARE:.0%} of it to a run; the plan would add "
        f"{at_most(own, 6)} and come to {at_most(total, 6)} in all{nearest} "
        f"({past.cell(planned)})"
    )


def _noted(
    plan: Plan,
    bounds: Mapping[str, Sequence[spending.Composition]],
    accounts: Mapping[str, spending.Account],
    population: str,
) -> Plan:
    """The plan with its book, and warnings per group about past releases and adaptivity."""
    lines, booked = [], []
    for group in plan.groups:
        if group.name not in bounds:
            lines.append(
                f"{spending.full_name(population, group.name)}: the book holds nothing of this "
                f"group; this run may spend the whole budget {group.epsilon:g}, which leaves "
                "nothing to later runs; give it a smaller epsilon here if others are to follow"
            )
            continue
        one, *others = bounds[group.name]
        history, account = plan.history(group), accounts.get(group.name)
        past = f"the {len(account.histories)} in the book" if account else "its account"
        lines.append(
            f"{spending.full_name(population, group.name)}: of {one.budget:g} over all runs, this "
            f"run may spend {group.epsilon:.6g} by itself; as planned it comes, with {past}, to "
            f"{at_most(one.epsilon(history), 6)} ({one.cell(history)})"
        )
        lines += [
            f"{other.where}: with this run {at_most(other.epsilon(history), 6)} of "
            f"{other.budget:g} ({other.cell(history)})"
            for other in others
        ]
        booked.append(budget := _booked(group, one, history))
        if line := budget.adaptivity:
            lines.append(line)
    update = {"warnings": (*plan.warnings, *lines), "book": tuple(booked) or None}
    return plan.model_copy(update=update)


def _booked(
    group: GroupPlan, one: spending.Composition, history: History
) -> BookBudget:
    """What the plan stores of a group's past runs, and of what adaptivity costs."""
    exact = exact_noise = None
    if one.rule != "exact" and not one.units:
        exactly = one.exact()
        exact, goal = exactly.epsilon(history), one.epsilon(history)

        def cost(negative_log: float) -> float:
            try:
                return exactly.epsilon(
                    spending.scaled(history, math.exp(-negative_log))
                )
            except UnsupportedError:  # too little noise to compose: above any budget
                return math.inf

        least = largest_affordable(
            cost, goal, start=0.0, low=0.0, high=5.0, tolerance=_TOLERANCE, slope=1.0
        )
        if least is not None:
            exact_noise = group.noise_multiplier * math.exp(-least)
    return BookBudget(
        group=group.name, rule=one.rule, phrase=one.phrase, budget=one.budget,
        spent=one.epsilon(History()), total=one.epsilon(history),
        noise_multiplier=group.noise_multiplier, exact_total=exact,
        exact_noise_multiplier=exact_noise,
    )  # fmt: skip
