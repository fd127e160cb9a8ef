"""Planning from a book: a plan that, composed with past releases, keeps the budgets.

The epsilon of a group in the spec is the budget of its clients over all runs. The plan
is solved for a smaller epsilon, the allotment of the run, until the plan's releases and
those in the book come close to the budget from below, under the rule by which the
group's runs are composed (``composition``). The next allotment is computed in the
Gaussian limit, in which squares of mu add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from privplan.accounting.accountant import at_most
from privplan.accounting.bracketing import largest_affordable
from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.release import History, Relation
from privplan.book.accounts import Budgets, has_accounts
from privplan.book.composition import (
    BookRule,
    Composition,
    composition_of,
    scaled,
)
from privplan.book.database import address_of
from privplan.book.entry import BookedRun
from privplan.book.spending import Account, account_of, full_name, groups_of
from privplan.book.store import has_runs, runs
from privplan.errors import InfeasibleError, InputError, UnsupportedError
from privplan.plan import BookBudget, GroupPlan, Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

# Smallest allotment over the budget; below it the budget counts as spent.
LEAST_SHARE = 0.05

_MARGIN = 5e-4  # of the budget, which the first allotment leaves free
_CLOSE = 1 - 2e-3  # of the budget: a plan that comes to it uses the budget
_SPENT = 0.97  # of its allotment: a group whose budget does not bind spends less
_ENOUGH_SOLVES = 3  # afterwards a plan that fits is good enough
_MAX_SOLVES = 10
_TOLERANCE = 1e-4  # of a factor on the noise, relative
_MAX_LOG_FACTOR = 10.0  # with e^10 times its noise a run spends next to nothing
_MIN_LOG_FACTOR = -5.0  # with e^-5 times its noise it protects nobody
_LARGE = 1e300  # a cost that can still be compared, in the place of infinity


def solve_at(
    spec: Spec,
    address: str,
    population: str = "",
    rule: BookRule | None = None,
) -> Plan:
    """``solve_from_book`` with the runs and the budget accounts of a book.

    Args:
        spec: the problem.
        address: a file or SQLAlchemy address; empty for the default.
        population: name of the population of the spec's groups.
        rule: as in ``solve_from_book``.

    Raises:
        InputError: when there is no such book, or as ``solve_from_book``.
        InfeasibleError: as ``solve_from_book``.
    """
    # A book of accounts need not have a table of runs.
    url = address_of(address)
    past: tuple[BookedRun, ...] = ()
    if has_runs(url):
        past = runs(url)
    limits: dict[str, list[Composition]] = {}
    if has_accounts(address):
        budgets = Budgets(address)
        for group in spec.groups:
            name = full_name(population, group.name)
            limits[group.name] = budgets.limits(name, past)
    if not any(limits.values()):
        past = runs(url)
    return solve_from_book(spec, past, population=population, rule=rule, limits=limits)


@dataclass(frozen=True)
class _Candidate:
    """A plan for some allotments, against what the book leaves.

    Attributes:
        plan: whose groups have the allotments as epsilon.
        allotments: epsilon of this run by itself, by group.
        budgets: epsilon over all runs, by group.
        bounds: by group, what its releases are composed with; it must fit into each.
        accountant: the one that the spec plans by.
    """

    plan: Plan
    allotments: Mapping[str, float]
    budgets: Mapping[str, float]
    bounds: Mapping[str, Sequence[Composition]]
    accountant: str

    def history(self, name: str) -> History:
        """The releases of a group."""
        return self.plan.history(self.plan.group(name))

    @cached_property
    def fits(self) -> bool:
        """Whether the plan keeps all budgets."""
        for name, compositions in self.bounds.items():
            history = self.history(name)
            if not all(composition.fits(history) for composition in compositions):
                return False
        return True

    @property
    def planned_epsilons(self) -> dict[str, float]:
        """What the run spends by itself, by group.

        It is counted by the accountant that planned the group; by that of the guarantee
        where the certificate has no other.
        """
        epsilons = {}
        for accountant in (self.plan.guarantee, self.accountant):
            for row in self.plan.certificate:
                if row.accountant == accountant:
                    epsilons[row.group] = row.epsilon_upper
        return epsilons

    @cached_property
    def overstated(self) -> dict[str, float]:
        """What groups may spend that are said to have more than that.

        A group whose allotment does not bind, such as by shared noise, may spend what
        it does spend, and the rest of its budget beyond it. Empty of a plan that does
        not keep the budgets.
        """
        if not self.fits:
            return {}
        planned = self.planned_epsilons
        overstated = {}
        for name, compositions in self.bounds.items():
            allotment = self.allotments[name]
            if planned[name] >= _SPENT * allotment:
                continue
            history = self.history(name)
            affordable = min(
                planned[name] + composition.budget - composition.epsilon(history)
                for composition in compositions
            )
            if allotment * _CLOSE > affordable:
                overstated[name] = affordable
        return overstated

    def uses(self) -> bool:
        """Whether the plan comes close to all budgets, or may not come closer."""
        planned = self.planned_epsilons
        for name, compositions in self.bounds.items():
            allotment = self.allotments[name]
            if allotment == self.budgets[name] or planned[name] < _SPENT * allotment:
                continue
            history = self.history(name)
            if not any(
                composition.epsilon(history) >= _CLOSE * composition.budget
                for composition in compositions
            ):
                return False
        return True


def solve_from_book(
    spec: Spec,
    past: Sequence[BookedRun],
    *,
    population: str = "",
    rule: BookRule | None = None,
    limits: Mapping[str, Sequence[Composition]] | None = None,
) -> Plan:
    """The plan of a spec within the remaining part of its budgets.

    Args:
        spec: the problem; each group's epsilon is its budget over all runs.
        past: the runs of the book.
        population: name of the population of the spec's groups.
        rule: how past runs and the planned one are composed: a filter, for a run that
            is chosen after seeing earlier ones, or ``exact``, for runs that were all
            fixed before the first result. By default the rule of the group's budget
            account, else the filter of ``composition_of``.
        limits: by group, its budget account and the ceilings of that, in which past
            runs count already; the plan fits into each.

    Returns:
        A plan whose groups have the run's allotments as epsilon; ``book`` and warnings
        give the composed epsilon and what adaptivity costs.

    Raises:
        InputError: when past releases of a group have another relation or unit than the
            plan, or the rule is not that of the group's account or does not cover its
            releases.
        InfeasibleError: when past releases leave no room for a plan, or none is found.
    """
    accounts = _accounts(spec, past, population)
    requested = solve(spec)
    budgets = {group.name: group.epsilon for group in requested.groups}
    if not set(accounts) <= set(budgets):
        raise InputError.one(
            "groups", "must keep their names to plan from a book", list(budgets)
        )

    bounds = _bounds(spec, requested, accounts, rule, limits or {})
    accountant = spec.planning.accountant
    candidate = _Candidate(requested, budgets, budgets, bounds, accountant)
    for attempt in range(_MAX_SOLVES):
        is_close = attempt >= _ENOUGH_SOLVES or candidate.uses()
        if candidate.fits and not candidate.overstated and is_close:
            return _noted(candidate.plan, bounds, accounts, population)

        # A plan that says more than the book leaves is only lowered.
        allotments = {**candidate.allotments, **candidate.overstated}
        if not candidate.overstated:
            aim = 1 - _MARGIN * 2**attempt  # noise on a grid needs more margin
            allotments = _next_allotments(candidate, requested, aim)
        plan = solve(_with_epsilons(spec, allotments))
        candidate = replace(candidate, plan=plan, allotments=allotments)
    names = ", ".join(bounds)
    raise InfeasibleError(
        f"{names}: no plan found within what the book leaves of the budgets"
    )


def _accounts(
    spec: Spec, runs: Sequence[BookedRun], population: str
) -> dict[str, Account]:
    """The past releases of the spec's groups that are in the book."""
    booked_names = {name for _, name in groups_of(runs, population)}
    accounts = {}
    for group in spec.groups:
        if group.name not in booked_names:
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


def _bounds(
    spec: Spec,
    requested: Plan,
    accounts: Mapping[str, Account],
    rule: BookRule | None,
    limits: Mapping[str, Sequence[Composition]],
) -> dict[str, list[Composition]]:
    """All that each group's releases are composed with: the book's runs, and accounts.

    Raises:
        InputError: when the rule or the relation differs from that of an account.
    """
    bounds = {}
    for group in requested.groups:
        compositions = list(limits.get(group.name, ()))
        if compositions:
            _require_equal_rules(spec, compositions[0], rule)
        account = accounts.get(group.name)
        if account is not None:
            rule_of_runs = compositions[0].rule if compositions else rule
            compositions = [
                composition_of(account, group.epsilon, group.delta, rule_of_runs),
                *compositions,
            ]
        if compositions:
            bounds[group.name] = compositions
    return bounds


def _require_equal_rules(
    spec: Spec, account: Composition, rule: BookRule | None
) -> None:
    """Refuse a plan by another rule, or for another relation, than its account's."""
    for field, of_account, planned in (
        ("rule", account.rule, rule or account.rule),
        ("relation", account.relation, Relation(spec.relation)),
    ):
        if of_account != planned:
            text = f"must be {of_account}, as of the account {account.where}"
            raise InputError.one(field, text, str(planned))


def _with_epsilons(spec: Spec, allotments: Mapping[str, float]) -> Spec:
    groups = tuple(
        group.model_copy(update={"epsilon": allotments[group.name]})
        for group in spec.groups
    )
    return spec.model_copy(update={"groups": groups})


def _next_allotments(
    candidate: _Candidate, requested: Plan, aim: float
) -> dict[str, float]:
    """The next allotments; those of groups without bounds do not change.

    Args:
        candidate: the present plan.
        requested: the plan for the whole budgets.
        aim: the part of a budget that the next plan is to come to.

    Raises:
        InfeasibleError: when one falls below ``LEAST_SHARE`` of its budget.
    """
    allotments = dict(candidate.allotments)
    planned = candidate.planned_epsilons
    for name, compositions in candidate.bounds.items():
        group = requested.group(name)
        history = candidate.history(name)
        # A group that does not spend its allotment is judged by what it spends.
        epsilon = allotments[name]
        if planned[name] < _SPENT * epsilon:
            epsilon = planned[name]
        squared_mu = _squared_mu(epsilon, group.delta)
        squares = [
            _next_squared_mu(composition, history, squared_mu, aim)
            for composition in compositions
        ]
        smallest = min(squares)
        share = 0.0
        if smallest > 0:
            share = epsilon_of(math.sqrt(smallest), group.delta)
        if share < LEAST_SHARE * group.epsilon:
            tightest = compositions[squares.index(smallest)]
            raise InfeasibleError(_refusal(requested, group, tightest))
        allotments[name] = min(share, group.epsilon)
    return allotments


def _next_squared_mu(
    composition: Composition, history: History, squared_mu: float, aim: float
) -> float:
    """mu^2 of the next allotment.

    Under a filter, from the noise with which a plan of the same ratios and rounds takes
    that part of what is left: a divergence at one order grows too suddenly to be
    extrapolated.

    Args:
        composition: what the releases must fit into.
        history: the releases of the present plan.
        squared_mu: mu^2 of the present allotment.
        aim: the part of the budget, or of what is left of it, to come to.
    """
    delta = composition.delta
    share = composition.share(history)
    if share is None:
        goal = _squared_mu(aim * composition.budget, delta)
        return squared_mu + goal - _squared_mu(composition.epsilon(history), delta)
    nothing_is_left = share == math.inf and composition.share(History()) != 0
    if nothing_is_left:
        return 0.0

    def share_at(negative_log: float) -> float:
        noisier = scaled(history, math.exp(-negative_log))
        return min(composition.share(noisier) or 0.0, _LARGE)

    negative_log = largest_affordable(
        share_at,
        aim,
        start=0.0,
        low=-_MAX_LOG_FACTOR,
        high=-_MIN_LOG_FACTOR,
        tolerance=_TOLERANCE,
    )
    if negative_log is None:
        return 0.0
    affordable = scaled(history, math.exp(-negative_log))
    before = _squared_mu(composition.alone(history), delta)
    after = _squared_mu(composition.alone(affordable), delta)
    if before > 0:
        return squared_mu * after / before
    return math.inf


def _squared_mu(epsilon: float, delta: float) -> float:
    """mu^2 of the Gaussian mechanism with this epsilon at delta."""
    if epsilon <= 0:
        return 0.0
    if math.isfinite(epsilon):
        return mu_of(epsilon, delta) ** 2
    return math.inf


def _refusal(requested: Plan, group: GroupPlan, past: Composition) -> str:
    """Why nothing is left: spent, planned and total epsilon, and what would do."""
    planned = requested.history(group)
    spent = past.epsilon(History())
    total = past.epsilon(planned)
    alone = group.epsilon
    for row in requested.certificate:
        if row.guarantee and row.group == group.name:
            alone = row.epsilon_upper
            break

    exactly = ""
    nearest = ""
    # A filter has another order at another budget, so no nearest one is known.
    if past.rule == "exact" and math.isfinite(total):
        nearest = f"; nearest feasible budget {math.ceil(total * 1e3) / 1e3:g}"
    elif past.rule != "exact" and not past.units:
        bound = at_most(past.exact().epsilon(History()), 6)
        exactly = f" ({bound} if all runs were fixed before any result: --rule exact)"
    return (
        f"{past.where}: the book counts epsilon {at_most(spent, 6)} of the budget "
        f"{past.budget:g}{exactly}, which leaves less than {LEAST_SHARE:.0%} of it to a "
        f"run; the plan would add {at_most(alone, 6)} and come to {at_most(total, 6)} in "
        f"all{nearest} ({past.cell(planned)})"
    )


def _noted(
    plan: Plan,
    bounds: Mapping[str, Sequence[Composition]],
    accounts: Mapping[str, Account],
    population: str,
) -> Plan:
    """The plan with its book, and warnings on past releases and adaptivity."""
    warnings = list(plan.warnings)
    book = []
    for group in plan.groups:
        where = full_name(population, group.name)
        if group.name not in bounds:
            warnings.append(
                f"{where}: the book holds nothing of this group; this run may spend the "
                f"whole budget {group.epsilon:g}, which leaves nothing to later runs; "
                "give it a smaller epsilon here if others are to follow"
            )
            continue

        main, *ceilings = bounds[group.name]
        history = plan.history(group)
        account = accounts.get(group.name)
        if account:
            past = f"the {len(account.histories)} in the book"
        else:
            past = "its account"
        warnings.append(
            f"{where}: of {main.budget:g} over all runs, this run may spend "
            f"{group.epsilon:.6g} by itself; as planned it comes, with {past}, to "
            f"{at_most(main.epsilon(history), 6)} ({main.cell(history)})"
        )
        for ceiling in ceilings:
            warnings.append(
                f"{ceiling.where}: with this run "
                f"{at_most(ceiling.epsilon(history), 6)} of {ceiling.budget:g} "
                f"({ceiling.cell(history)})"
            )
        budget = _book_budget(group, main, history)
        book.append(budget)
        if budget.adaptivity:
            warnings.append(budget.adaptivity)
    update = {"warnings": tuple(warnings), "book": tuple(book) or None}
    return plan.model_copy(update=update)


def _book_budget(
    group: GroupPlan, composition: Composition, history: History
) -> BookBudget:
    """What the plan stores of a group's past runs, and of what adaptivity costs."""
    total = composition.epsilon(history)
    exact_total = None
    exact_noise = None
    if composition.rule != "exact" and not composition.units:
        exactly = composition.exact()
        exact_total = exactly.epsilon(history)
        factor = _exact_noise_factor(exactly, history, total)
        if factor is not None:
            exact_noise = group.noise_multiplier * factor
    return BookBudget(
        group=group.name,
        rule=composition.rule,
        phrase=composition.phrase,
        budget=composition.budget,
        spent=composition.epsilon(History()),
        total=total,
        noise_multiplier=group.noise_multiplier,
        exact_total=exact_total,
        exact_noise_multiplier=exact_noise,
    )


def _exact_noise_factor(
    exactly: Composition, history: History, total: float
) -> float | None:
    """The least factor on the noise with which exact composition spends no more."""

    def cost(negative_log: float) -> float:
        try:
            return exactly.epsilon(scaled(history, math.exp(-negative_log)))
        except UnsupportedError:  # too little noise to compose: above any budget
            return math.inf

    negative_log = largest_affordable(
        cost,
        total,
        start=0.0,
        low=0.0,
        high=-_MIN_LOG_FACTOR,
        tolerance=_TOLERANCE,
        slope=1.0,
    )
    if negative_log is None:
        return None
    return math.exp(-negative_log)
