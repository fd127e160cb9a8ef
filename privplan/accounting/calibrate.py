"""Calibration of T equal releases: the value of one parameter that just keeps a budget.

Cost grows with sampling ratio, rounds and cohort and falls with noise and delta, so
searches run over log q, log T, log m, -log sigma and -log delta. They start at the
value of the central limit.

A target is a budget with the accountant whose upper bound on epsilon must keep it.
``solve`` takes a target and the history of releases as a function of one unknown; the
result was evaluated by the target's accountant, so that it never overspends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from privplan.accounting import closed_form
from privplan.accounting.accountant import Accountant, checked_delta
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.bracketing import largest_affordable
from privplan.accounting.gdp import mu_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import (
    Fault,
    InfeasibleError,
    InputError,
    TooLittleNoiseError,
    UnsupportedError,
)
from privplan.guidance import checked_call
from privplan.laws.law import Pair

# Smallest and largest noise multiplier of a search.
NOISE_RANGE = (1e-2, 1e4)
LEAST_RATIO = 1e-9
MOST_ROUNDS = 10_000_000
PLD = "pld"
# Below, ``pld`` cannot tell an epsilon from 0 to the tolerance of a search.
LEAST_EPSILON = 1e-6
LEAST_DELTA = 1e-15

# Relative tolerances of a parameter, and of delta.
_RTOL = 1e-4
_DELTA_RTOL = 1e-3
# How far a small epsilon may stay below its budget: absolutely, and as a share of it.
_SLACK = 2e-6
_LARGEST_SLACK = 2e-3
# Epsilon below which its exact value tells a search nothing.
_STEEP = 1e-2
# From so many rounds on, and below such a sampling ratio, a bound is computed no more
# closely than decides on the budget: a closer one takes much longer. So does any bound
# of a whole run whose noise is correlated by a running sum.
_MANY_ROUNDS = 100_000
_SMALL_RATIO = 1e-3
# Of the coarse bounds that tell where a search starts.
_GUESS_TOLERANCE = 1e-2
# Coarse bounds that are further apart stay so, however finely they are computed.
_ALIKE = 0.95
# Coarse epsilons at most, and the step after which none is worth it.
_MOST_GUESSES = 8
_LAST_GUESSED_STEP = 5e-3
# The same where a bound takes ten times as long as an estimate, and how far epsilon may
# then stay below its budget, in tolerances: 0.04% by default.
_LAST_STEP_OF_TABLES = 1e-3
_ENOUGH_OF_TABLES = 4
# Slopes of log epsilon outside of these tell nothing.
_LEAST_SLOPE = 0.05
_MOST_SLOPE = 100
# So that the least noise stays certifiable in spite of rounding.
_ABOVE_LEAST = 1.0001
# Largest 1 / sigma^2 of a central limit: e^700 is near the largest float.
_MOST_INVERSE_SQUARE = 700.0
# Where a search for delta starts without a bound: -log delta of about 6e-6.
_USUAL_LOG_DELTA = 12.0
# The noise at which laws are asked what they cover: none computes tables for so much.
_MUCH_NOISE = 2 * NOISE_RANGE[1]
_RANGES = {
    "noise_multiplier": NOISE_RANGE,
    "sampling_ratio": (LEAST_RATIO, 1.0),
    "rounds": (1, MOST_ROUNDS),
    "clients": (1, 1 / LEAST_RATIO),
    "epsilon_tolerance": (1e-9, math.inf),
}


@dataclass(frozen=True)
class CalibrationTarget:
    """An (epsilon, delta) budget and the accountant whose upper bound must keep it."""

    epsilon: float
    delta: float
    sampling: SamplingLaw
    relation: Relation
    accountant: Accountant

    def spent(self, history: History) -> float:
        """Upper bound on the epsilon of a history at the target's delta."""
        return self.accountant.epsilon(history, self.delta, self.relation).upper

    def history(self, noise: float, ratio: float, rounds: float) -> History:
        """Equal releases under the target's sampling law."""
        return History.repeated(
            Release(noise, min(ratio, 1.0), self.sampling), int(rounds)
        )

    @property
    def decided(self) -> CalibrationTarget:
        """The same, with bounds no closer than decides on the budget."""
        from privplan.accounting.pld.accountant import PldAccountant

        if self.accountant.name != PLD:
            return self
        return replace(self, accountant=PldAccountant(decide=self.epsilon))

    @property
    def cell(self) -> str:
        """Sampling law, relation and accountant, for messages."""
        accountant = f"accountant {self.accountant.name}"
        return f"{self.sampling} sampling, {self.relation}, {accountant}"

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g} at delta {self.delta:g} ({self.cell})"

    @property
    def _sensitivity(self) -> float:
        """Clipping norms by which neighbouring data sets differ."""
        return float(self.sampling.law.sensitivity(self.relation))

    def central_noise(self, ratio: float, rounds: float) -> float:
        """Noise at which the central limit meets the budget, in its range."""
        inverse_square = mu_of(self.epsilon, self.delta) ** 2 / rounds
        chance_square = ratio**2 / self.sampling.law.one_of
        if chance_square != 1:
            inverse_square = math.log1p(inverse_square / chance_square)
        sigma: float = 1 / math.sqrt(inverse_square)
        return min(max(sigma * self._sensitivity, NOISE_RANGE[0]), NOISE_RANGE[1])

    def central_ratio(self, noise: float, rounds: float) -> float:
        """Sampling ratio at which the central limit meets the budget, in its range."""
        inverse_square = min((self._sensitivity / noise) ** 2, _MOST_INVERSE_SQUARE)
        mu = mu_of(self.epsilon, self.delta)
        ratio = mu / math.sqrt(rounds * math.expm1(inverse_square))
        return min(max(ratio, LEAST_RATIO), 1.0)


@lru_cache(maxsize=64)
def least_certified(sampling: SamplingLaw, relation: Relation) -> float:
    """The least noise multiplier that is planned: that ``pld`` certifies if sampled."""
    from privplan.accounting.families import dominating_pairs
    from privplan.accounting.pld.pairs import LARGEST_SHIFT

    law = sampling.law
    if law.everyone:
        return NOISE_RANGE[0]
    if law.contributions > 1:
        return law.contributions * _ABOVE_LEAST / LARGEST_SHIFT
    pairs = dominating_pairs(Release(1.0, 0.5, sampling), relation)
    shifts = [pair.shift for pair in pairs.upper if isinstance(pair, Pair)]
    largest = max(shifts, default=float(law.sensitivity(relation)))
    return largest * _ABOVE_LEAST / LARGEST_SHIFT


def solve(
    target: CalibrationTarget,
    history: Callable[[float], History],
    *,
    start: float,
    low: float,
    high: float,
    tolerance: float,
    integer: bool = False,
    start_is_close: bool = False,
    of_noise: bool = False,
) -> float | None:
    """Search for the largest unknown whose history keeps the target's budget.

    Args:
        target: the budget.
        history: of an unknown; its epsilon must not decrease with the unknown.
        start: a guess of the unknown.
        low: its smallest value.
        high: its largest value.
        tolerance: of the unknown.
        integer: whether the unknown is the logarithm of an integer.
        start_is_close: whether no better start is estimated.
        of_noise: whether the unknown is the noise, so that values which the accountant
            does not cover are on the side that exceeds the budget.

    Returns:
        The unknown; None where none keeps the budget.
    """

    def spent(argument: float) -> float:
        try:
            return target.spent(history(argument))
        except TooLittleNoiseError:
            if not of_noise:
                raise
            return math.inf

    most_rounds = max(history(low).rounds, history(high).rounds)
    ratios = [release.sampling_ratio for release, _ in history(start)]
    is_small = min(ratios, default=1.0) < _SMALL_RATIO
    enough = 0.0
    if target.epsilon < _STEEP or most_rounds >= _MANY_ROUNDS or is_small:
        target = target.decided
        if not integer:
            slack = min(_SLACK / target.epsilon, _LARGEST_SLACK)
            enough = max(2 * tolerance, slack)
    last_step = _LAST_GUESSED_STEP
    if not integer and target.sampling.law.rank_one_factors() is not None:
        enough = max(enough, _ENOUGH_OF_TABLES * tolerance)
        last_step = _LAST_STEP_OF_TABLES
    slope = 1.0
    if target.accountant.name == PLD and not start_is_close:
        start, slope = _estimated_start(target, history, start, low, high, last_step)
    return largest_affordable(
        spent,
        target.epsilon,
        start=start,
        low=low,
        high=high,
        tolerance=tolerance,
        integer=integer,
        slope=slope,
        enough=enough,
    )


class _Guess(NamedTuple):
    """Where a search starts.

    Attributes:
        argument: about where the budget is spent.
        slope: of log epsilon there.
    """

    argument: float
    slope: float


def quick_epsilon(
    history: History,
    delta: float,
    relation: Relation,
    near: float,
    *,
    rough: bool = True,
) -> float | None:
    """About the epsilon of alike releases, where their law has a quick estimate.

    Not for guarantees.

    Args:
        history: what was released.
        delta: in (0, 1).
        relation: which data sets are neighbours.
        near: an epsilon that is looked for.
        rough: whether an error of 0.1% is allowed, or of 1% away from ``near``.
    """
    releases = list(history)
    if len(releases) != 1 or relation == Relation.REPLACE_ONE:
        return None
    [(release, times)] = releases
    return release.sampling.law.estimated_epsilon(
        release.noise_multiplier, times, delta, near, rough=rough
    )


def _coarse_epsilon(
    coarse: Accountant, target: CalibrationTarget, history: History
) -> float:
    """The mean of close bounds, else the upper one."""
    bounds = coarse.epsilon(history, target.delta, target.relation)
    if _ALIKE * bounds.upper < bounds.lower:
        return math.sqrt(bounds.lower * bounds.upper)
    return bounds.upper


def _estimated_start(
    target: CalibrationTarget,
    history: Callable[[float], History],
    start: float,
    low: float,
    high: float,
    last_step: float,
) -> _Guess:
    """The solution by secants of coarse bounds, about, and the slope of log epsilon."""
    from privplan.accounting.pld.accountant import PldAccountant

    coarse = PldAccountant(tolerance=_GUESS_TOLERANCE)
    argument = min(max(start, low), high)
    slope = 1.0
    before: tuple[float, float] | None = None
    end_of_range = high
    for _ in range(_MOST_GUESSES):
        releases = history(argument)
        spent = quick_epsilon(releases, target.delta, target.relation, target.epsilon)
        try:
            spent = spent or _coarse_epsilon(coarse, target, releases)
        except TooLittleNoiseError:
            break
        if not 0 < spent < math.inf:
            break
        log_excess = math.log(spent / target.epsilon)
        if before is not None and argument != before[0]:
            measured = (log_excess - before[1]) / (argument - before[0])
            if _LEAST_SLOPE < measured < _MOST_SLOPE:
                slope = measured
        before = (argument, log_excess)
        if log_excess > 0:
            high = min(high, argument)
        else:
            low = max(low, argument)
        following = argument - log_excess / slope

        # The range may end before the budget does.
        is_beyond = following >= high == end_of_range
        if not low < following < high:
            following = high if is_beyond else (low + high) / 2
        is_settled = abs(following - argument) < last_step
        argument = following
        if is_beyond or is_settled:
            break
    return _Guess(argument, slope)


def checked_target(
    epsilon: float,
    delta: float | None,
    sampling: SamplingLaw | str,
    relation: Relation | str,
    accountant: str | Accountant,
    numbers: dict[str, float],
) -> CalibrationTarget:
    """The target, with the other parameters' ``numbers`` checked against their ranges.

    Raises:
        InputError: naming all that is out of range.
        UnsupportedError: where the accountant does not cover the law or the relation.
    """
    faults = []
    if not 0 < epsilon < math.inf:
        faults.append(Fault("epsilon", "must be positive and finite", epsilon))
    if delta is None or not 0 < delta < 1:
        faults.append(Fault("delta", "must be in (0, 1)", delta))
    for field, value in numbers.items():
        faults += _range_faults(field, value)
    try:
        law = SamplingLaw(sampling)
    except ValueError:
        rule = f"must be one of {', '.join(SamplingLaw)}"
        faults.append(Fault("sampling", rule, sampling))
    if relation not in tuple(Relation):
        rule = f"must be one of {', '.join(Relation)}"
        faults.append(Fault("relation", rule, relation))
    if faults or delta is None:
        raise InputError(faults)
    if isinstance(accountant, str):
        chosen = by_name(accountant)
    else:
        chosen = accountant
    target = CalibrationTarget(epsilon, delta, law, Relation(relation), chosen)
    ratio = 1.0 if target.sampling.law.everyone else 0.5
    reason = chosen.why_not(target.history(_MUCH_NOISE, ratio, 1), target.relation)
    if reason is not None:
        raise UnsupportedError(f"{chosen.name}: {reason}")
    return target


def _range_faults(field: str, value: float) -> list[Fault]:
    """The fault of a number that is out of its range, or not whole."""
    ends = _RANGES[field]
    if not ends[0] <= value <= ends[1]:
        texts = [f"{end}" if isinstance(end, int) else f"{end:g}" for end in ends]
        return [Fault(field, f"must be in [{', '.join(texts)}]", value)]
    if field in ("rounds", "clients") and value != int(value):
        return [Fault(field, "must be a whole number", value)]
    return []


UNKNOWNS = {
    "noise_multiplier": ("sampling_ratio", "rounds"),
    "sampling_ratio": ("noise_multiplier", "rounds"),
    "rounds": ("noise_multiplier", "sampling_ratio"),
    "cohort": ("noise_multiplier", "rounds", "clients"),
    "delta": ("noise_multiplier", "sampling_ratio", "rounds"),
}
"""Parameters that ``calibrate`` solves for, each with the parameters that must be given."""


@checked_call
def calibrate(
    unknown: str,
    epsilon: float,
    delta: float | None = None,
    *,
    noise_multiplier: float | None = None,
    sampling_ratio: float | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    sampling: SamplingLaw | str = "poisson",
    relation: Relation | str = "add_remove",
    accountant: str | Accountant = PLD,
    rtol: float = _RTOL,
    near: float | None = None,
) -> float:
    """One parameter of T equal releases: the value that just keeps the budget.

    Args:
        unknown: one of ``UNKNOWNS``, whose other parameters must be given.
        epsilon: the budget over all rounds.
        delta: failure probability, in (0, 1).
        noise_multiplier: noise standard deviation over the clipping norm.
        sampling_ratio: chance of a client to take part in a round.
        rounds: number of releases.
        clients: size of the population, for a cohort.
        sampling: law of the cohorts.
        relation: which data sets are neighbours.
        accountant: whose upper bound keeps the budget.
        rtol: relative tolerance of a noise multiplier or a ratio. At sampling ratios
            below 1e-3 and from 100,000 rounds on, twice that of epsilon is enough; four
            times where one running sum correlates the noise of a run.
        near: a first guess of a noise multiplier.

    Raises:
        InputError: naming what is missing or out of range.
        InfeasibleError: where no value keeps the budget.
    """
    numbers: dict[str, float | None] = {
        "noise_multiplier": noise_multiplier,
        "sampling_ratio": sampling_ratio,
        "rounds": rounds,
        "clients": clients,
    }
    faults = parameter_faults(unknown, {**numbers, "delta": delta})
    if faults:
        raise InputError(faults)
    fixed = {
        name: value
        for name, value in numbers.items()
        if name in UNKNOWNS[unknown] and value is not None
    }
    fixed_delta = 0.5 if unknown == "delta" else delta
    target = checked_target(epsilon, fixed_delta, sampling, relation, accountant, fixed)
    _check_unknown(unknown, target, fixed)
    if unknown == "delta":
        return _delta(target, **fixed)
    is_noise = unknown == "noise_multiplier"
    if is_noise and target.accountant.name == "closed_form":
        return _closed_form_noise(target, **fixed)

    integer = unknown in ("rounds", "cohort")
    search = _search(unknown, target, near, **fixed)
    result = solve(
        target,
        search.history,
        start=search.start,
        low=search.low,
        high=search.high,
        tolerance=_RTOL if integer else rtol,
        integer=integer,
        start_is_close=near is not None and is_noise,
        of_noise=is_noise,
    )
    if result is None:
        raise InfeasibleError(f"{unknown}: {search.failure}")
    if integer:
        return round(math.exp(result))
    if not is_noise:
        return math.exp(result)
    return _or_least(math.exp(-result), target, fixed, 2 * max(rtol, _RTOL))


def _check_unknown(
    unknown: str, target: CalibrationTarget, fixed: Mapping[str, float]
) -> None:
    """Raise where a parameter cannot be solved for."""
    everyone = target.sampling.law.everyone
    is_sampled = not everyone and fixed.get("sampling_ratio") != 1
    if target.accountant.name == PLD and is_sampled and target.epsilon < LEAST_EPSILON:
        rule = (
            f"must be {LEAST_EPSILON:g} or more to solve for {unknown} by pld under "
            "sampling"
        )
        raise InputError.one("epsilon", rule, target.epsilon)
    if unknown in ("sampling_ratio", "cohort") and everyone:
        rule = f"has no {unknown.replace('_', ' ')} to solve for"
        raise InputError.one("sampling", rule, target.sampling)


def _or_least(
    noise: float, target: CalibrationTarget, fixed: Mapping[str, float], rtol: float
) -> float:
    """The least noise that pld certifies, where that is as good."""
    if target.accountant.name != PLD:
        return noise
    lowest = least_certified(target.sampling, target.relation)
    if abs(math.log(noise / lowest)) > rtol:
        return noise
    history = target.history(lowest, fixed["sampling_ratio"], fixed["rounds"])
    if target.spent(history) <= target.epsilon:
        return lowest
    return noise


def parameter_faults(unknown: str, values: Mapping[str, Any]) -> list[Fault]:
    """Faults of parameters that are missing, or given although they are the unknown."""
    if unknown not in UNKNOWNS:
        return [Fault("solve_for", f"must be one of {', '.join(UNKNOWNS)}", unknown)]
    faults = [
        Fault(name, f"must be given to solve for {unknown}", None)
        for name in UNKNOWNS[unknown]
        if values[name] is None
    ]
    if values.get(unknown) is not None:
        rule = "must not be given when it is the unknown"
        faults.append(Fault(unknown, rule, values[unknown]))
    return faults


noise_multiplier = partial(calibrate, "noise_multiplier")
"""The smallest noise multiplier that keeps a budget; see ``calibrate``."""


class _Search(NamedTuple):
    """A search for one unknown.

    Attributes:
        history: the releases at a value of the unknown's search variable.
        start: a first guess of that variable.
        low: its smallest value.
        high: its largest value.
        failure: what is said where no value keeps the budget.
    """

    history: Callable[[float], History]
    start: float
    low: float
    high: float
    failure: str


def _search(
    unknown: str,
    target: CalibrationTarget,
    near: float | None,
    noise_multiplier: float = 0.0,
    sampling_ratio: float = 0.0,
    rounds: float = 0,
    clients: float = 0,
) -> _Search:
    """The search for an unknown, over its logarithm, or minus that of the noise."""
    if unknown == "noise_multiplier":
        return _noise_search(target, near, sampling_ratio, rounds)
    noise = noise_multiplier
    with_noise = f"can meet {target} with noise multiplier {noise:g}"
    if unknown == "sampling_ratio":
        return _Search(
            lambda log_ratio: target.history(noise, math.exp(log_ratio), rounds),
            start=math.log(target.central_ratio(noise, rounds)),
            low=math.log(LEAST_RATIO),
            high=0.0,
            failure=f"none from {LEAST_RATIO:g} to 1 {with_noise} over {rounds} rounds",
        )
    if unknown == "rounds":
        high = math.log(MOST_ROUNDS)
        start = 2 * math.log(target.central_ratio(noise, 1) / sampling_ratio)
        return _Search(
            lambda log_rounds: target.history(
                noise, sampling_ratio, round(math.exp(log_rounds))
            ),
            start=min(max(start, 0.0), high),
            low=0.0,
            high=high,
            failure=f"not even 1 {with_noise}, sampling ratio {sampling_ratio:g}",
        )
    high = math.log(clients)
    return _Search(
        lambda log_cohort: target.history(
            noise, round(math.exp(log_cohort)) / clients, rounds
        ),
        start=max(math.log(target.central_ratio(noise, rounds)) + high, 0.0),
        low=0.0,
        high=high,
        failure=f"not even 1 {with_noise}, {clients} clients, {rounds} rounds",
    )


def _noise_search(
    target: CalibrationTarget, near: float | None, ratio: float, rounds: float
) -> _Search:
    """That for a noise multiplier, over minus its logarithm."""
    lowest, largest = NOISE_RANGE
    return _Search(
        lambda minus_log: target.history(math.exp(-minus_log), ratio, rounds),
        start=-math.log(near or target.central_noise(ratio, rounds)),
        low=-math.log(largest),
        high=-math.log(lowest),
        failure=(
            f"none in [{lowest:g}, {largest:g}] can meet {target} at sampling ratio "
            f"{ratio:g} over {rounds} rounds"
        ),
    )


def _closed_form_noise(
    target: CalibrationTarget, sampling_ratio: float, rounds: float
) -> float:
    """Theorem 1 solved for sigma, in the range; halved noise counts twice."""
    release = Release(1.0, sampling_ratio, target.sampling)
    factor = closed_form.effective_noise(release, target.relation)
    effective = closed_form.noise_multiplier(
        target.epsilon, target.delta, sampling_ratio, int(rounds)
    )
    sigma = effective / factor

    # The formula's last digit may be rounded down.
    while target.spent(target.history(sigma, sampling_ratio, rounds)) > target.epsilon:
        sigma *= 1 + 4e-16
    if not sigma <= NOISE_RANGE[1]:
        raise InfeasibleError(
            f"noise_multiplier: none up to {NOISE_RANGE[1]:g} can meet {target}; "
            f"Theorem 1 requires {sigma:.4g}"
        )
    return max(sigma, NOISE_RANGE[0])


def _delta(
    target: CalibrationTarget,
    noise_multiplier: float,
    sampling_ratio: float,
    rounds: float,
) -> float:
    """The smallest delta at which the releases keep the target's epsilon."""
    history = target.history(noise_multiplier, sampling_ratio, rounds)

    def spent(minus_log_delta: float) -> float:
        at_delta = replace(target.decided, delta=math.exp(-minus_log_delta))
        return at_delta.spent(history)

    high = -math.log(LEAST_DELTA)
    start = _USUAL_LOG_DELTA
    if target.accountant.name == PLD:
        from privplan.accounting.pld.accountant import compose

        # A bound on delta that is close, half a tolerance above, mostly serves.
        bounds = compose(history, target.relation).delta(target.epsilon, _DELTA_RTOL)
        upper = bounds.upper
        start = min(-math.log(max(upper, LEAST_DELTA)), high)
        candidate = min(upper * (1 + _DELTA_RTOL / 2), (1 + upper) / 2)
        is_close = upper < 1 and upper <= (1 + 1.5 * _DELTA_RTOL) * bounds.lower
        if is_close and candidate > LEAST_DELTA:
            at_candidate = replace(target.decided, delta=candidate)
            if at_candidate.spent(history) <= target.epsilon:
                return checked_delta(candidate)
    result = largest_affordable(
        spent,
        target.epsilon,
        start=start,
        low=-math.log1p(-1e-9),
        high=high,
        tolerance=_DELTA_RTOL,
    )
    if result is None:
        raise InfeasibleError(
            f"delta: none below 1 gives epsilon {target.epsilon:g} with noise "
            f"multiplier {noise_multiplier:g}, sampling ratio {sampling_ratio:g}, "
            f"{rounds} rounds ({target.cell})"
        )
    return checked_delta(math.exp(-result))


# Opacus' tolerance of epsilon.
_BISECTED = 0.01


def noise_multiplier_by_bisection(
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float,
    rounds: int,
    accountant: str | Accountant = "rdp",
) -> float:
    """A noise multiplier as widespread calibrators find it, for comparison with papers.

    They double sigma from 10 until the budget is kept, then halve the bracket until
    epsilon lies within 0.01 of the budget, Opacus' default. That leaves up to 2% of
    unspent epsilon and of sigma^2: the published 13.20 for SVHN is 12.93 when solved
    exactly. Poisson sampling, add/remove; arguments and errors are those of
    ``calibrate``.
    """
    numbers = {"sampling_ratio": sampling_ratio, "rounds": float(rounds)}
    target = checked_target(
        epsilon, delta, "poisson", "add_remove", accountant, numbers
    )

    def spent(sigma: float) -> float:
        return target.spent(target.history(sigma, sampling_ratio, rounds))

    low = 0.0
    high = 10.0
    spent_at_high = spent(high)
    while spent_at_high > epsilon:
        high *= 2
        if high > NOISE_RANGE[1]:
            raise InfeasibleError(f"noise_multiplier: none can meet {target}")
        spent_at_high = spent(high)
    while epsilon - spent_at_high > _BISECTED:
        middle = (low + high) / 2
        spent_at_middle = spent(middle)
        if spent_at_middle < epsilon:
            high = middle
            spent_at_high = spent_at_middle
        else:
            low = middle
    return high
