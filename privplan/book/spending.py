"""Epsilon of a group over all its runs: exact composition, naive sum and a Renyi bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from privplan.accounting.accountant import Interval, accountant, at_most, outwards
from privplan.accounting.calibrate import LEAST_RATIO, MOST_ROUNDS, NOISE_RANGE
from privplan.accounting.certificate import laws
from privplan.accounting.families import not_gaussian
from privplan.accounting.gdp import epsilon_of, largest_affordable, mu_of
from privplan.accounting.rdp import ORDERS, rdp_of_release
from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    Unit,
    named_law,
)
from privplan.book.entry import DECLARED, BookedRun
from privplan.errors import Fault, InfeasibleError, InputError, UnsupportedError
from privplan.proven import finding_on
from privplan.values import Value

if TYPE_CHECKING:
    from privplan.proof import Finding

GUARANTEE = "pld"


@dataclass(frozen=True)
class Account:
    """All releases of one group of one population, by run."""

    population: str
    group: str
    unit: Unit  # unit of privacy of the releases
    relation: Relation  # neighbouring relation of the composition
    sources: tuple[str, ...]  # the runs, in the order in which they were added
    histories: tuple[History, ...]  # releases of the group in each run, likewise
    # smallest delta of the runs' plans for the group; None when no plan has the group
    delta: float | None
    kept: int = 0  # number of runs whose verdict is kept
    checked: tuple[str, ...] = ()  # how strongly each run was checked, in words
    plans: tuple[str, ...] = ()  # digests of their plans, or declared names, each once
    declared: frozenset[int] = frozenset()  # places of the histories that are declared
    partial: bool = (
        False  # whether a run may have stopped within a turn, which spends less
    )

    @property
    def history(self) -> History:
        """All releases of all runs."""
        return sum(self.histories, History())

    @property
    def where(self) -> str:
        """Population and name of the group."""
        return full_name(self.population, self.group)

    @property
    def levels(self) -> dict[str, int]:
        """Number of runs by how strongly they were checked."""
        return dict(Counter(self.checked))

    def composed(self, more: History, delta: float) -> Interval:
        """Bounds on epsilon at ``delta`` of the composition of the book's releases and ``more``."""
        return accountant(GUARANTEE).epsilon(self.history + more, delta, self.relation)

    def cell(self, more: History, delta: float) -> str:
        """Delta, sampling law, relation and accountant of ``composed``, as text."""
        law = named_law(laws(self.history + more), self.unit)
        return f"delta {delta:.4g}, {law} sampling, {self.relation}, accountant {GUARANTEE}"


def full_name(population: str, group: str) -> str:
    """Population and name of a group, as text."""
    return f"{population}/{group}" if population else group


class Spending(Value):
    """Realised epsilon of a group; None where it is infinite."""

    population: str
    group: str
    unit: Unit
    relation: Relation
    sampling: str
    delta: float
    accountant: str
    runs: int  # number of runs with releases of the group
    kept: int  # number of these runs whose verdict is kept
    levels: dict[str, int]  # number of these runs by how strongly they were checked
    releases: (
        int  # number of rounds in all runs; in whole cycles where clients take turns
    )
    epsilon_lower: (
        float | None
    )  # lower bound for the composition of all releases of all runs
    epsilon_upper: float | None  # upper bound for it
    # sum of the runs' own epsilons, each at ``delta / runs``: basic composition, also an upper
    # bound at ``delta``
    epsilon_naive: float | None
    # an independent upper bound, which holds even if later runs were chosen adaptively; None where
    # that accountant does not apply
    epsilon_rdp: float | None
    plans: tuple[str, ...]  # digests of the runs' plans, or declared names, each once


def groups_of(
    runs: Iterable[BookedRun], population: str | None
) -> list[tuple[str, str]]:
    """Every (population, group) of the book, sorted; of one population unless it is None."""
    pairs = {
        (run.population, share.group)
        for run in runs
        for share in run.shares
        if population is None or run.population == population
    }
    return sorted(pairs)


def account_of(
    runs: Sequence[BookedRun],
    population: str,
    group: str,
    relation: Relation | None = None,
) -> Account:
    """The account of a group."""
    pairs = [
        (run, share)
        for run in runs
        for share in run.shares
        if (run.population, share.group) == (population, group)
    ]
    if not pairs:
        known = ", ".join(name for _, name in groups_of(runs, population)) or "none"
        rule = f"must be in the book (population {population!r} has {known})"
        raise InputError.one("group", rule, group)
    units = {share.unit for _, share in pairs}
    relations = (
        {share.relation for _, share in pairs} if relation is None else {relation}
    )
    for name, values in (("relation", relations), ("unit", units)):
        if len(values) > 1:
            rule = f"must be one in all runs to compose them for group {group}"
            raise InputError.one(name, rule, " and ".join(sorted(values)))
    deltas = [share.delta for _, share in pairs if share.delta is not None]
    unfinished = [
        one for run, share in pairs if run.status != "complete" for one in share.history
    ]
    named = [run.source if run.algorithm == DECLARED else run.plan for run, _ in pairs]
    return Account(
        population=population,
        group=group,
        unit=units.pop(),
        relation=relations.pop(),
        sources=tuple(run.source for run, _ in pairs),
        histories=tuple(share.history for _, share in pairs),
        delta=min(deltas, default=None),
        kept=sum(run.verdict == "kept" for run, _ in pairs),
        checked=tuple(run.checked for run, _ in pairs),
        plans=tuple(dict.fromkeys(named)),
        declared=frozenset(
            i for i, (run, _) in enumerate(pairs) if run.algorithm == DECLARED
        ),
        partial=any(
            release.sampling.law.complete_at(1) > 1 for release, _ in unfinished
        ),
    )


def delta_for(account: Account, given: float | None) -> float:
    """The given delta, else the smallest delta of the runs' plans for the group."""
    delta = account.delta if given is None else given
    if delta is None or not 0 < delta < 1:
        rule = f"must be in (0, 1) for group {account.group}"
        rule += ", of which the book has no plan: give --delta" if delta is None else ""
        raise InputError.one("delta", rule, delta)
    return delta


def spending(account: Account, delta: float) -> Spending:
    """Realised epsilon of the group at ``delta``."""
    history, runs = account.history, account.histories
    spent = account.composed(History(), delta)
    part = math.nextafter(
        delta / len(runs), 0.0
    )  # an equal part for each run, rounded down
    each = {
        h: accountant(GUARANTEE).epsilon(h, part, account.relation).upper
        for h in set(runs)
    }
    try:
        renyi = accountant("rdp").epsilon(history, delta, account.relation).upper
    except UnsupportedError:
        renyi = math.inf
    return Spending(
        population=account.population, group=account.group, unit=account.unit,
        relation=account.relation, sampling=named_law(laws(history), account.unit), delta=delta,
        accountant=GUARANTEE, runs=len(runs), kept=account.kept, levels=account.levels,
        releases=sum(one.sampling.law.rounds_for(count) for one, count in history),
        epsilon_lower=0.0 if account.partial else _finite(spent.lower),
        epsilon_upper=_finite(spent.upper),
        epsilon_naive=_finite(math.fsum(each[one] for one in runs)), epsilon_rdp=_finite(renyi),
        plans=account.plans,
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def spendings(
    runs: Sequence[BookedRun],
    *,
    group: str | None = None,
    population: str | None = None,
    delta: float | None = None,
    relation: Relation | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Spending], list[Fault]]:
    """Realised epsilon of several groups, and the faults of those that cannot be composed."""
    selected = [
        pair for pair in groups_of(runs, population) if group in (None, pair[1])
    ]
    if group is not None and not selected:
        account_of(runs, population or "", group)
    if population is not None and not selected:
        known = ", ".join(sorted({repr(run.population) for run in runs}))
        raise InputError.one(
            "population", f"must be in the book ({known or 'empty'})", population
        )
    spent: list[Spending] = []
    faults: list[Fault] = []
    for done, (where, name) in enumerate(selected):
        progress(done, len(selected))
        try:
            account = account_of(runs, where, name, relation)
            spent.append(spending(account, delta_for(account, delta)))
        except InputError as error:
            faults += error.faults
        except UnsupportedError as error:
            faults.append(Fault(f"group {name}", "must be composable", str(error)))
    return spent, faults


def proven_spendings(
    runs: Sequence[BookedRun], spent: Iterable[Spending]
) -> dict[str, Finding]:
    """What is proven of groups' upper bounds, by their full names."""
    findings = {}
    for group in spent:
        account = account_of(runs, group.population, group.group, group.relation)
        findings[account.where] = finding_on(
            account.history, group.relation, group.epsilon_upper, group.delta
        )
    return findings


# -------------------------------------------------------------------------------------------------
# Privacy filters: what a release costs when later releases are chosen after seeing earlier ones.
#
# Composing privacy losses exactly is no valid filter: an adversary that chooses the next release
# by the outcome of the last exceeds delta (arXiv 2602.06756). Two filters are valid. Each adds up
# one non-negative cost per release against a capacity that is fixed before the first release:
#
# - ``renyi``: the Rényi divergence at one order alpha. While its sum is at most R, every adaptive
#   sequence has a divergence of at most R (Feldman and Zrnic 2021, arXiv 2008.11193, Theorem 4.3),
#   and R converts to (epsilon, delta).
# - ``gaussian``: mu^2 of Gaussian releases in which everybody takes part. While the sum is at most
#   mu^2, the sequence is mu-GDP (Smith and Thakurta 2022, arXiv 2210.17520). It costs nothing
#   over composition fixed in advance, and does not cover sampling.
#
# Costs are whole numbers of a fixed unit, rounded up, and capacities are rounded down, so that
# sums are exact.

Filter = Literal["renyi", "gaussian"]
UNIT = 10.0**-10  # cost of one unit: Rényi divergence or mu^2
MOST_UNITS = 2**62


def order_of(
    epsilon: float,
    delta: float,
    typical: History | None = None,
    relation: Relation = Relation.ADD_REMOVE,
) -> int:
    """Index in ``ORDERS`` of the order at which most runs fit; any fixed one is valid."""
    _check(epsilon, delta)
    each = ORDERS
    if typical is not None:
        each = np.zeros_like(ORDERS)
        for release, count in typical:
            each = each + count * rdp_of_release(release, relation)
    return int(np.argmax(_capacities(epsilon, delta) / np.maximum(each, 1e-300)))


def _capacities(epsilon: float, delta: float) -> np.ndarray:
    """Rényi divergence at each order that implies (epsilon, delta); may be negative."""
    converted = np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (
        ORDERS - 1
    )
    return np.asarray(epsilon - converted)


def capacity(rule: Filter, epsilon: float, delta: float, order: int) -> int:
    """The capacity of a budget, in units, at an order (Rényi filter)."""
    _check(epsilon, delta)
    if rule == "gaussian":
        return _down(mu_of(epsilon, delta) ** 2)
    found = float(_capacities(epsilon, delta)[order])
    if found <= UNIT:
        raise InputError.one(
            "epsilon", "must be larger for a Rényi filter at this delta", epsilon
        )
    return _down(found)


def cost(rule: Filter, history: History, relation: Relation, order: int) -> int:
    """The cost of releases, in units; more than any capacity where they have no noise."""
    reason = not_gaussian(history) if rule == "gaussian" else None
    if reason is not None:
        raise UnsupportedError(f"gaussian filter: {reason}")
    total = 0
    for release, count in history:
        if release.sampling_ratio == 0 or math.isinf(release.noise_multiplier):
            continue
        if rule == "gaussian":
            if release.sampling_ratio != 1:
                raise UnsupportedError(
                    "gaussian filter: covers releases in which everybody takes part, found "
                    f"ratio {release.sampling_ratio:g}; use the renyi filter"
                )
            noise = release.noise_multiplier / release.sampling.law.sensitivity(
                relation
            )
            one = math.inf if noise < 1e-9 else noise**-2
        else:
            one = float(rdp_of_release(release, relation)[order])
        if not one < MOST_UNITS * UNIT:
            return MOST_UNITS
        total += math.ceil(one / UNIT * (1 + 1e-12)) * count
    return min(total, MOST_UNITS)


def spent_epsilon(rule: Filter, units: int, delta: float, order: int) -> float:
    """Upper bound on the epsilon at ``delta`` of releases with this cost, chosen adaptively."""
    if units == 0:
        return 0.0
    if units >= MOST_UNITS:
        return math.inf
    value = units * UNIT
    if rule == "gaussian":
        return epsilon_of(math.sqrt(value), delta)
    alpha = float(ORDERS[order])
    shift = math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
    return max(0.0, value + shift)


def _check(epsilon: float, delta: float) -> None:
    if not (0 < epsilon < 1000 and 0 < delta < 1):
        rule = "must have epsilon in (0, 1000) and delta in (0, 1)"
        raise InputError.one("budget", rule, (epsilon, delta))


def _down(value: float) -> int:
    return min(math.floor(value / UNIT * (1 - 1e-12)), MOST_UNITS)


# --- How the runs of a group are composed against its budget: exactly, or by a filter. -----------
# Exact composition holds for runs that were all fixed before the first result. A run that is
# chosen after seeing an earlier one needs a filter (``filters``). By default the first run of the
# book decides which one, since nothing was seen before it: the Gaussian filter where everybody
# took part in it, else the Rényi filter at the order at which most such runs fit.

BookRule = Literal["renyi", "gaussian", "exact"]


@dataclass(frozen=True)
class Composition:
    """Past releases under one rule, against one budget."""

    where: str  # population and group, or the name of an account
    rule: BookRule  # ``exact``, or the filter
    relation: Relation  # neighbouring relation
    budget: float  # epsilon over all runs
    delta: float  # its failure probability
    order: int = 0  # index in ``ORDERS`` of the order of the Rényi filter
    past: History = field(default_factory=History)  # past releases
    units: int = 0  # cost of further past releases that are known by their cost only
    unit: Unit = "client"  # unit of privacy

    def epsilon(self, more: History) -> float:
        """Upper bound on the epsilon of the past releases and ``more``."""
        if self.rule == "exact":
            return (
                accountant(GUARANTEE)
                .epsilon(self.past + more, self.delta, self.relation)
                .upper
            )
        return spent_epsilon(self.rule, self._spent(more), self.delta, self.order)

    def alone(self, more: History) -> float:
        """Upper bound on the epsilon of ``more`` without the past releases."""
        return accountant(GUARANTEE).epsilon(more, self.delta, self.relation).upper

    def fits(self, more: History) -> bool:
        """Whether the past releases and ``more`` stay within the budget."""
        if self.rule == "exact":
            return self.epsilon(more) <= self.budget
        return self._spent(more) <= self._capacity

    def share(self, more: History) -> float | None:
        """Cost of ``more`` over what is left (inf if nothing is); None for exact composition."""
        if self.rule == "exact":
            return None
        spent = self._spent(History())
        left = self._capacity - spent
        return (self._spent(more) - spent) / left if left > 0 else math.inf

    def exact(self) -> Composition:
        """The same past releases, composed exactly."""
        return replace(self, rule="exact")

    def cell(self, more: History) -> str:
        """Delta, sampling law, relation and rule, as text."""
        law = named_law(laws(self.past + more), self.unit)
        return f"delta {self.delta:.4g}, {law} sampling, {self.relation}, {self.phrase}"

    @property
    def phrase(self) -> str:
        """The rule as text."""
        if self.rule == "exact":
            return f"accountant {GUARANTEE}"
        if self.rule == "gaussian":
            return "gaussian filter"
        return f"renyi filter at order {ORDERS[self.order]:g}"

    @property
    def _capacity(self) -> int:
        return capacity(cast(Filter, self.rule), self.budget, self.delta, self.order)

    def _spent(self, more: History) -> int:
        try:
            found = cost(
                cast(Filter, self.rule), self.past + more, self.relation, self.order
            )
        except UnsupportedError as error:
            text = "must cover the releases, as exact does for runs fixed in advance"
            raise InputError.one("rule", f"{text} ({error})", self.rule) from None
        return min(self.units + found, MOST_UNITS)


def composition_of(
    account: Account, budget: float, delta: float, rule: BookRule | None = None
) -> Composition:
    """How a group's runs are composed."""
    first = next((one for one in account.histories if one.rounds), History())
    if rule is None:
        everybody = first.rounds and all(
            release.sampling_ratio == 1 for release, _ in first
        )
        rule = "gaussian" if everybody and 0 not in account.declared else "renyi"
    known = (account.where, rule, account.relation, budget, delta)
    if rule == "exact":
        return Composition(*known, past=account.history, unit=account.unit)
    typical = first if first.rounds and rule == "renyi" else None
    try:
        order = order_of(budget, delta, typical, account.relation)
    except UnsupportedError as error:
        text = f"must be gaussian, where everybody takes part, or exact ({error})"
        raise InputError.one("rule", text, rule) from None
    capacity(rule, budget, delta, order)
    return Composition(*known, order=order, past=account.history, unit=account.unit)


def scaled(history: History, factor: float) -> History:
    """The releases with their noise multipliers times a factor."""
    return History(
        (replace(one, noise_multiplier=one.noise_multiplier * factor), count)
        for one, count in history
    )


# The remaining part of a group's total budget, and the noise of a next run that fits into it.

MOST_EPSILON = (
    50.0  # a likelihood ratio of e^50 protects nobody, and takes long to compute
)
_TOLERANCE = 1e-4


class Remaining(Value):
    """The remaining part of a total budget, and the noise of a next run that fits into it."""

    population: str
    group: str
    unit: Unit
    budget: float  # epsilon over all runs, past and future, at ``delta``
    delta: float
    relation: Relation
    accountant: str
    sampling: str
    levels: dict[
        str, int
    ]  # number of runs in the book by how strongly they were checked
    # bounds on the epsilon of all releases in the book, by exact composition
    spent_lower: float
    spent_upper: float
    rule: str  # how past runs and a next one are composed
    spent: float  # epsilon of all releases in the book under the rule
    # budget minus ``spent``; a next run may cost more by itself, as epsilons do not add up exactly
    headroom: float
    next_sampling: str  # sampling law of the next run
    next_ratio: float  # its sampling ratio
    next_rounds: int
    # the smallest, to 1e-4 and six digits, with which such a run fits; None when none does
    noise_multiplier: float | None
    total: float | None  # epsilon of the book and such a run under the rule


def remaining(
    account: Account,
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float | None = None,
    rounds: int | None = None,
    rule: BookRule | None = None,
) -> Remaining:
    """The remaining part of ``epsilon`` at ``delta``."""
    trained = [
        h for at, h in enumerate(account.histories) if at not in account.declared
    ]
    last = trained[-1] if trained else account.histories[-1]  # rather than a count
    # A release of the next run with noise multiplier 1, and how many a client may be in.
    usual = max(last, key=lambda pair: pair[1], default=(Release(1.0, 1.0), 0))[0]
    law, ratio = usual.sampling, usual.sampling_ratio
    if sampling_ratio is not None:
        ratio = sampling_ratio
        if law is SamplingLaw.FULL and ratio != 1:
            law = SamplingLaw.POISSON
    release = Release(1.0, ratio, law)
    count = last.rounds if rounds is None else law.law.rounds_of_client(rounds)
    faults = []
    if not 0 < epsilon <= MOST_EPSILON:
        faults.append(
            Fault("epsilon", f"must be positive and at most {MOST_EPSILON:g}", epsilon)
        )
    if not LEAST_RATIO <= ratio <= 1:
        faults.append(
            Fault("sampling_ratio", f"must be in [{LEAST_RATIO:g}, 1]", ratio)
        )
    if not 1 <= count <= MOST_ROUNDS:
        faults.append(Fault("rounds", f"must be in [1, {MOST_ROUNDS}]", count))
    if faults:
        raise InputError(faults)
    composition = composition_of(account, epsilon, delta, rule)
    bounds = account.composed(History(), delta)
    if not composition.fits(History()):
        under = ""
        if composition.rule != "exact":
            under = f"; {composition.phrase} counts {at_most(composition.epsilon(History()), 6)}"
        raise InfeasibleError(
            f"{account.where}: nothing is left of epsilon {epsilon:g}; spent between "
            f"{outwards(bounds.lower, False, 6):.6g} and {at_most(bounds.upper, 6)} "
            f"({account.cell(History(), delta)}){under}"
        )
    noise, total = _least_noise(composition, release, count), None
    if noise is not None:
        next_run = History.repeated(replace(release, noise_multiplier=noise), count)
        total = composition.epsilon(next_run)
    spent = (
        bounds.upper if composition.rule == "exact" else composition.epsilon(History())
    )
    return Remaining(
        population=account.population, group=account.group, unit=account.unit, budget=epsilon,
        delta=delta, relation=account.relation, accountant=GUARANTEE,
        sampling=named_law(laws(account.history), account.unit), levels=account.levels,
        spent_lower=bounds.lower,
        spent_upper=bounds.upper, rule=composition.phrase, spent=spent, headroom=epsilon - spent,
        next_sampling=named_law(release.sampling, account.unit), next_ratio=release.sampling_ratio,
        next_rounds=release.sampling.law.rounds_for(count) if rounds is None else rounds,
        noise_multiplier=noise, total=total,
    )  # fmt: skip


def _least_noise(
    composition: Composition, release: Release, rounds: int
) -> float | None:
    """The smallest noise multiplier with which the book and such a run keep the budget."""

    def cost(negative_log: float) -> float:
        noisy = replace(release, noise_multiplier=math.exp(-negative_log))
        try:
            return composition.epsilon(History.repeated(noisy, rounds))
        except UnsupportedError:  # too little noise to compose: above any budget
            return math.inf

    low, high = (-math.log(bound) for bound in reversed(NOISE_RANGE))
    result = largest_affordable(
        cost,
        composition.budget,
        start=0.0,
        low=low,
        high=high,
        tolerance=_TOLERANCE,
        slope=1.0,
    )
    if result is None:
        return None
    noise = math.exp(-result)
    unit = 10.0 ** (math.floor(math.log10(noise)) - 5)
    return float(f"{math.ceil(noise / unit) * unit:.6g}")  # rounded up to six digits
