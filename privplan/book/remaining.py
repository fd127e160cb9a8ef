"""What is left of a group's total budget, and the noise of a next run that fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privplan.accounting.accountant import Interval, at_most, outwards
from privplan.accounting.bracketing import largest_affordable
from privplan.accounting.calibrate import LEAST_RATIO, MOST_ROUNDS, NOISE_RANGE
from privplan.accounting.certificate import laws
from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    Unit,
    named_law,
)
from privplan.book.composition import BookRule, Composition, composition_of
from privplan.book.spending import GUARANTEE, Account
from privplan.errors import Fault, InfeasibleError, InputError, UnsupportedError
from privplan.values import Value, omitted

# A likelihood ratio of e^50 protects nobody, and takes long to compute.
MOST_EPSILON = 50.0
_TOLERANCE = 1e-4  # of the noise multiplier, relative
_DIGITS = 6  # of the noise multiplier that is returned
_NOTHING = History()


class Remaining(Value):
    """The remaining part of a total budget, and the noise of a next run that fits.

    Attributes:
        budget: epsilon over all runs, past and future, at ``delta``.
        levels: number of runs in the book by how strongly they were checked.
        spent_lower: lower bound on the epsilon of all releases in the book.
        spent_upper: upper bound on it; both by exact composition.
        rule: how past runs and a next one are composed.
        spent: epsilon of all releases in the book under the rule.
        headroom: budget minus ``spent``; a next run may cost more by itself, as
            epsilons do not add up exactly.
        next_sampling: sampling law of the next run.
        next_ratio: its sampling ratio.
        next_rounds: its number of rounds.
        noise_multiplier: the smallest, to 1e-4 and six digits, with which such a run
            fits; None when none does.
        total: epsilon of the book and such a run under the rule.
        person: the word of the runs' plans for whom they protect; person where they
            differ.
    """

    population: str
    group: str
    unit: Unit
    budget: float
    delta: float
    relation: Relation
    accountant: str
    sampling: str
    levels: dict[str, int]
    spent_lower: float
    spent_upper: float
    rule: str
    spent: float
    headroom: float
    next_sampling: str
    next_ratio: float
    next_rounds: int
    noise_multiplier: float | None
    total: float | None
    person: str | None = omitted("The word of the plans for whom they protect.")


@dataclass(frozen=True)
class _NextRun:
    """The releases of a client in a next run, but for their noise.

    Attributes:
        release: with noise multiplier 1.
        count: how many of them a client may be in.
    """

    release: Release
    count: int

    def history(self, noise_multiplier: float) -> History:
        noisy = replace(self.release, noise_multiplier=noise_multiplier)
        return History.repeated(noisy, self.count)


def remaining(
    account: Account,
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float | None = None,
    rounds: int | None = None,
    rule: BookRule | None = None,
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
        InputError: when a value is out of range, or the rule does not cover the
            releases.
        InfeasibleError: when more than the budget is spent already.
    """
    next_run = _next_run(account, sampling_ratio, rounds)
    _check(epsilon, next_run)
    composition = composition_of(account, epsilon, delta, rule)
    bounds = account.composed(_NOTHING, delta)
    if not composition.fits(_NOTHING):
        raise InfeasibleError(_refusal(composition, bounds))

    noise_multiplier = _least_noise(composition, next_run)
    total = None
    if noise_multiplier is not None:
        total = composition.epsilon(next_run.history(noise_multiplier))

    spent = bounds.upper
    if composition.rule != "exact":
        spent = composition.epsilon(_NOTHING)
    release = next_run.release
    if rounds is None:
        rounds = release.sampling.law.rounds_for(next_run.count)
    return Remaining(
        population=account.population,
        group=account.group,
        unit=account.unit,
        person=account.person,
        budget=epsilon,
        delta=delta,
        relation=account.relation,
        accountant=GUARANTEE,
        sampling=named_law(laws(account.history), account.unit),
        levels=account.levels,
        spent_lower=bounds.lower,
        spent_upper=bounds.upper,
        rule=composition.phrase,
        spent=spent,
        headroom=epsilon - spent,
        next_sampling=named_law(release.sampling, account.unit),
        next_ratio=release.sampling_ratio,
        next_rounds=rounds,
        noise_multiplier=noise_multiplier,
        total=total,
    )


def _next_run(account: Account, ratio: float | None, rounds: int | None) -> _NextRun:
    """A run of the shape of the last one, where nothing else is asked for."""
    # A run that trained says more about the next one than a count that was published.
    trained = [
        history
        for index, history in enumerate(account.histories)
        if index not in account.declared
    ]
    last_history = trained[-1] if trained else account.histories[-1]

    without_releases = (Release(1.0, 1.0), 0)
    usual, _ = max(last_history, key=lambda pair: pair[1], default=without_releases)
    law = usual.sampling
    if ratio is None:
        ratio = usual.sampling_ratio
    elif law is SamplingLaw.FULL and ratio != 1:
        law = SamplingLaw.POISSON
    if rounds is None:
        count = last_history.rounds
    else:
        count = law.law.rounds_of_client(rounds)
    return _NextRun(Release(1.0, ratio, law), count)


def _check(epsilon: float, next_run: _NextRun) -> None:
    """Refuse all values that are out of range at once."""
    faults = []
    if not 0 < epsilon <= MOST_EPSILON:
        rule = f"must be positive and at most {MOST_EPSILON:g}"
        faults.append(Fault("epsilon", rule, epsilon))
    ratio = next_run.release.sampling_ratio
    if not LEAST_RATIO <= ratio <= 1:
        rule = f"must be in [{LEAST_RATIO:g}, 1]"
        faults.append(Fault("sampling_ratio", rule, ratio))
    if not 1 <= next_run.count <= MOST_ROUNDS:
        faults.append(Fault("rounds", f"must be in [1, {MOST_ROUNDS}]", next_run.count))
    if faults:
        raise InputError(faults)


def _refusal(composition: Composition, bounds: Interval) -> str:
    """What was spent of a budget of which nothing is left."""
    counted = ""
    if composition.rule != "exact":
        spent = at_most(composition.epsilon(_NOTHING), _DIGITS)
        counted = f"; {composition.phrase} counts {spent}"
    return (
        f"{composition.where}: nothing is left of epsilon {composition.budget:g}; spent "
        f"between {outwards(bounds.lower, False, _DIGITS):.6g} and "
        f"{at_most(bounds.upper, _DIGITS)} "
        f"({composition.exact().cell(_NOTHING)}){counted}"
    )


def _least_noise(composition: Composition, next_run: _NextRun) -> float | None:
    """The smallest noise multiplier with which the book and a next run fit."""

    def cost(negative_log: float) -> float:
        try:
            return composition.epsilon(next_run.history(math.exp(-negative_log)))
        except UnsupportedError:  # too little noise to compose: above any budget
            return math.inf

    # Epsilon does not decrease with the negative logarithm of the noise multiplier.
    smallest, largest = NOISE_RANGE
    result = largest_affordable(
        cost,
        composition.budget,
        start=0.0,
        low=-math.log(largest),
        high=-math.log(smallest),
        tolerance=_TOLERANCE,
        slope=1.0,
    )
    if result is None:
        return None

    # Rounded up to six digits, so that the run with the printed noise fits, too.
    noise = math.exp(-result)
    unit = 10.0 ** (math.floor(math.log10(noise)) - (_DIGITS - 1))
    return float(f"{math.ceil(noise / unit) * unit:.6g}")
