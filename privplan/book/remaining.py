"""The remaining part of a group's total budget, and the noise of a next run that fits into it."""

from __future__ import annotations

import math
from dataclasses import replace

from privplan.accounting.accountant import accountant
from privplan.accounting.certificate import laws
from privplan.accounting.gdp import mu_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw, Unit, named_law
from privplan.accounting.search import largest_affordable
from privplan.accounting.target import LEAST_RATIO, MOST_ROUNDS, NOISE_RANGE
from privplan.book.rules import Composition, Rule, composition_of
from privplan.book.spending import GUARANTEE, Account
from privplan.errors import Fault, InfeasibleError, InputError, UnsupportedError
from privplan.values import Value

MOST_REPETITIONS = 1_000_000
MOST_EPSILON = 50.0
"""Largest budget: a likelihood ratio of e^50 protects nobody, and takes long to compute."""
_TOLERANCE = 1e-4


class Remaining(Value):
    """The remaining part of a total budget.

    Attributes:
        budget: epsilon over all runs, past and future, at ``delta``.
        spent_lower: lower bound on the epsilon of all releases in the book.
        spent_upper: upper bound on it; both by exact composition.
        rule: how past runs and a next one are composed (``rules``).
        spent: epsilon of all releases in the book under the rule.
        headroom: budget minus ``spent``. A next run may cost more than this by itself,
            since epsilons do not add up exactly.
        last_run: source of the last run of the group.
        repetitions: number of repetitions of the last run that fit (at most
            ``MOST_REPETITIONS``).
        next_sampling: sampling law of a next run.
        next_ratio: its sampling ratio.
        next_rounds: its number of releases.
        noise_multiplier: the smallest, to 1e-4 and six digits, with which such a run fits; None
            when none does.
        alone: upper bound on the epsilon at ``delta`` of such a run by itself.
        total: epsilon of the book and such a run under the rule.
        exact_noise_multiplier: ``noise_multiplier`` under exact composition, which is valid for
            runs that were all fixed before the first result; None where no run fits, or where
            that is the rule.
    """

    population: str
    group: str
    unit: Unit
    budget: float
    delta: float
    relation: Relation
    accountant: str
    sampling: str
    spent_lower: float
    spent_upper: float
    rule: str
    spent: float
    headroom: float
    last_run: str
    repetitions: int
    next_sampling: str
    next_ratio: float
    next_rounds: int
    noise_multiplier: float | None
    alone: float | None
    total: float | None
    exact_noise_multiplier: float | None = None


def remaining(
    account: Account,
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float | None = None,
    rounds: int | None = None,
    rule: Rule | None = None,
) -> Remaining:
    """The remaining part of ``epsilon`` at ``delta``.

    Args:
        account: all past releases of the group.
        epsilon: the total budget.
        delta: failure probability.
        sampling_ratio: of the next run; by default that of the last run.
        rounds: of the next run; by default those of the last run.
        rule: how past runs and a next one are composed; by default a filter.

    Raises:
        InputError: when a value is out of range, or the rule does not cover the releases.
        InfeasibleError: when more than the budget is spent already.
    """
    release, count = _next_release(account.histories[-1], sampling_ratio, rounds)
    _check(epsilon, release.sampling_ratio, count)
    composition = composition_of(account, epsilon, delta, rule)
    bounds = account.composed(History(), delta)
    if not composition.fits(History()):
        under = (
            ""
            if composition.rule == "exact"
            else f"; {composition.phrase} counts {composition.epsilon(History()):.6g}"
        )
        raise InfeasibleError(
            f"{account.where}: nothing is left of epsilon {epsilon:g}; spent between "
            f"{bounds.lower:.6g} and {bounds.upper:.6g} ({account.cell(History(), delta)}){under}"
        )
    noise = _least_noise(composition, release, count)
    alone = total = exact_noise = None
    if noise is not None:
        next_run = History.repeated(replace(release, noise_multiplier=noise), count)
        alone = accountant(GUARANTEE).epsilon(next_run, delta, account.relation).upper
        total = composition.epsilon(next_run)
        if composition.rule != "exact":
            exact_noise = _least_noise(composition.exact(), release, count, noise)
    spent = bounds.upper if composition.rule == "exact" else composition.epsilon(History())
    return Remaining(
        population=account.population,
        group=account.group,
        unit=account.unit,
        budget=epsilon,
        delta=delta,
        relation=account.relation,
        accountant=GUARANTEE,
        sampling=named_law(laws(account.history), account.unit),
        spent_lower=bounds.lower,
        spent_upper=bounds.upper,
        rule=composition.phrase,
        spent=spent,
        headroom=epsilon - spent,
        last_run=account.sources[-1],
        repetitions=_repetitions(composition, account.histories[-1], spent),
        next_sampling=named_law(release.sampling, account.unit),
        next_ratio=release.sampling_ratio,
        next_rounds=count * release.sampling.law.turns if rounds is None else rounds,
        noise_multiplier=noise,
        alone=alone,
        total=total,
        exact_noise_multiplier=exact_noise,
    )


def _next_release(last: History, ratio: float | None, rounds: int | None) -> tuple[Release, int]:
    """A release of the next run with noise multiplier 1, and how many a client may be in."""
    usual = max(last, key=lambda pair: pair[1], default=(Release(1.0, 1.0), 0))[0]
    law = usual.sampling
    if ratio is None:
        ratio = usual.sampling_ratio
    elif law is SamplingLaw.FULL and ratio != 1:
        law = SamplingLaw.POISSON
    of_client = None if rounds is None else law.law.rounds_of_client(rounds)
    return Release(1.0, ratio, law), last.rounds if of_client is None else of_client


def _check(epsilon: float, ratio: float, rounds: int) -> None:
    faults = []
    if not 0 < epsilon <= MOST_EPSILON:
        rule = f"must be positive and at most {MOST_EPSILON:g}"
        faults.append(Fault("epsilon", rule, epsilon))
    if not LEAST_RATIO <= ratio <= 1:
        faults.append(Fault("sampling_ratio", f"must be in [{LEAST_RATIO:g}, 1]", ratio))
    if not 1 <= rounds <= MOST_ROUNDS:
        faults.append(Fault("rounds", f"must be in [1, {MOST_ROUNDS}]", rounds))
    if faults:
        raise InputError(faults)


def _repetitions(composition: Composition, last: History, spent: float) -> int:
    """The largest number of further repetitions of the last run that keeps the budget."""
    delta = composition.delta
    alone = accountant(GUARANTEE).epsilon(last, delta, composition.relation).upper
    if alone == 0 and not last.rounds:
        return MOST_REPETITIONS
    share = composition.share(last)
    if share is not None:  # costs under a filter add up
        exactly = MOST_REPETITIONS if share == 0 else min(1 / share, MOST_REPETITIONS)
        times = math.floor(exactly * (1 + 1e-9))
        return times if times == 0 or composition.fits(last * times) else times - 1

    def cost(logarithm: float) -> float:
        return composition.epsilon(last * round(math.exp(logarithm)))

    room = mu_of(composition.budget, delta) ** 2 - (mu_of(spent, delta) ** 2 if spent > 0 else 0.0)
    guess = room / mu_of(alone, delta) ** 2 if alone > 0 else 1.0
    result = largest_affordable(
        cost,
        composition.budget,
        start=math.log(max(guess, 1.0)),
        low=0.0,
        high=math.log(MOST_REPETITIONS),
        tolerance=_TOLERANCE,
        integer=True,
        slope=0.5,
    )
    return 0 if result.feasible is None else round(math.exp(result.feasible))


def _least_noise(
    composition: Composition, release: Release, rounds: int, near: float = 1.0
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
        start=-math.log(near),
        low=low,
        high=high,
        tolerance=_TOLERANCE,
        slope=1.0,
    )
    return None if result.feasible is None else _six_digits_up(math.exp(-result.feasible))


def _six_digits_up(noise: float) -> float:
    """The noise multiplier rounded up to six significant digits."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 5)
    return float(f"{math.ceil(noise / unit) * unit:.6g}")
