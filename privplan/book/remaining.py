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
        spent_upper: upper bound on it.
        headroom: budget minus ``spent_upper``. A next run may cost more than this by itself,
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
        total: upper bound on the epsilon of the composition of the book and such a run.
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
    headroom: float
    last_run: str
    repetitions: int
    next_sampling: str
    next_ratio: float
    next_rounds: int
    noise_multiplier: float | None
    alone: float | None
    total: float | None


def remaining(
    account: Account,
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float | None = None,
    rounds: int | None = None,
) -> Remaining:
    """The remaining part of ``epsilon`` at ``delta``.

    Args:
        account: all past releases of the group.
        epsilon: the total budget.
        delta: failure probability.
        sampling_ratio: of the next run; by default that of the last run.
        rounds: of the next run; by default those of the last run.

    Raises:
        InputError: when a value is out of range.
        InfeasibleError: when more than the budget is spent already.
    """
    release, count = _next_release(account.histories[-1], sampling_ratio, rounds)
    _check(epsilon, release.sampling_ratio, count)
    spent = account.composed(History(), delta)
    if not spent.upper <= epsilon:
        raise InfeasibleError(
            f"{account.where}: nothing is left of epsilon {epsilon:g}; spent between "
            f"{spent.lower:.6g} and {spent.upper:.6g} ({account.cell(History(), delta)})"
        )
    noise = _least_noise(account, epsilon, delta, release, count)
    alone = total = None
    if noise is not None:
        next_run = History.repeated(replace(release, noise_multiplier=noise), count)
        alone = accountant(GUARANTEE).epsilon(next_run, delta, account.relation).upper
        total = account.composed(next_run, delta).upper
    return Remaining(
        population=account.population,
        group=account.group,
        unit=account.unit,
        budget=epsilon,
        delta=delta,
        relation=account.relation,
        accountant=GUARANTEE,
        sampling=named_law(laws(account.history), account.unit),
        spent_lower=spent.lower,
        spent_upper=spent.upper,
        headroom=epsilon - spent.upper,
        last_run=account.sources[-1],
        repetitions=_repetitions(account, epsilon, delta, spent.upper),
        next_sampling=named_law(release.sampling, account.unit),
        next_ratio=release.sampling_ratio,
        next_rounds=count,
        noise_multiplier=noise,
        alone=alone,
        total=total,
    )


def _next_release(last: History, ratio: float | None, rounds: int | None) -> tuple[Release, int]:
    """A release of the next run with noise multiplier 1, and the number of rounds."""
    usual = max(last, key=lambda pair: pair[1], default=(Release(1.0, 1.0), 0))[0]
    law = usual.sampling
    if ratio is None:
        ratio = usual.sampling_ratio
    elif law is SamplingLaw.FULL and ratio != 1:
        law = SamplingLaw.POISSON
    return Release(1.0, ratio, law), last.rounds if rounds is None else rounds


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


def _repetitions(account: Account, epsilon: float, delta: float, spent: float) -> int:
    """The largest number of further repetitions of the last run that keeps the budget."""
    last = account.histories[-1]
    alone = accountant(GUARANTEE).epsilon(last, delta, account.relation).upper
    if alone == 0 and not last.rounds:
        return MOST_REPETITIONS

    def cost(logarithm: float) -> float:
        return account.composed(last * round(math.exp(logarithm)), delta).upper

    room = mu_of(epsilon, delta) ** 2 - (mu_of(spent, delta) ** 2 if spent > 0 else 0.0)
    guess = room / mu_of(alone, delta) ** 2 if alone > 0 else 1.0
    result = largest_affordable(
        cost,
        epsilon,
        start=math.log(max(guess, 1.0)),
        low=0.0,
        high=math.log(MOST_REPETITIONS),
        tolerance=_TOLERANCE,
        integer=True,
        slope=0.5,
    )
    return 0 if result.feasible is None else round(math.exp(result.feasible))


def _least_noise(
    account: Account, epsilon: float, delta: float, release: Release, rounds: int
) -> float | None:
    """The smallest noise multiplier with which the book and such a run keep the budget."""

    def cost(negative_log: float) -> float:
        noisy = replace(release, noise_multiplier=math.exp(-negative_log))
        try:
            return account.composed(History.repeated(noisy, rounds), delta).upper
        except UnsupportedError:  # too little noise to compose: above any budget
            return math.inf

    low, high = (-math.log(bound) for bound in reversed(NOISE_RANGE))
    result = largest_affordable(
        cost, epsilon, start=0.0, low=low, high=high, tolerance=_TOLERANCE, slope=1.0
    )
    return None if result.feasible is None else _six_digits_up(math.exp(-result.feasible))


def _six_digits_up(noise: float) -> float:
    """The noise multiplier rounded up to six significant digits."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 5)
    return float(f"{math.ceil(noise / unit) * unit:.6g}")
