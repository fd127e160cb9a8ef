"""The solver of every calibration: the largest unknown whose history keeps a privacy budget.

A target is a budget with the accountant whose upper bound on epsilon must keep it. ``solve`` takes
a target and the history of releases as a function of one unknown; the result was evaluated by the
target's accountant, so that it never overspends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from privplan.accounting.accountant import Accountant
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.gdp import mu_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.search import SearchResult, largest_affordable
from privplan.errors import Fault, InputError, TooLittleNoiseError, UnsupportedError
from privplan.laws.pairs import Pair

NOISE_RANGE = (1e-2, 1e4)
"""Smallest and largest noise multiplier of a search."""
LEAST_RATIO = 1e-9
MOST_ROUNDS = 10_000_000
PLD = "pld"
_GUESS_TOLERANCE = 1e-2
_ABOVE_LEAST = 1.0001
"""So that the least noise multiplier stays one that can be certified in spite of rounding."""
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

    def estimate(self, history: History) -> float:
        """Geometric mean of the bounds on epsilon; the upper one when the lower one is 0."""
        bounds = self.accountant.epsilon(history, self.delta, self.relation)
        usable = 0 < bounds.lower <= bounds.upper < math.inf
        return math.sqrt(bounds.lower * bounds.upper) if usable else bounds.upper

    def history(self, noise: float, ratio: float, rounds: float) -> History:
        """Equal releases under the target's sampling law."""
        return History.repeated(Release(noise, min(ratio, 1.0), self.sampling), int(rounds))

    @property
    def cell(self) -> str:
        """Sampling law, relation and accountant, for messages."""
        return f"{self.sampling} sampling, {self.relation}, accountant {self.accountant.name}"

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g} at delta {self.delta:g} ({self.cell})"

    @property
    def _halving(self) -> float:
        """2 where neighbouring data sets differ by two clipping norms, else 1."""
        return float(self.sampling.law.sensitivity(self.relation))

    def central_noise(self, ratio: float, rounds: float) -> float:
        """Noise multiplier at which the central limit meets the budget, clipped to the range."""
        square = mu_of(self.epsilon, self.delta) ** 2 / rounds
        sigma: float = 1 / math.sqrt(square if ratio == 1 else math.log1p(square / ratio**2))
        return min(max(sigma * self._halving, NOISE_RANGE[0]), NOISE_RANGE[1])

    def central_ratio(self, noise: float, rounds: float) -> float:
        """Sampling ratio at which the central limit meets the budget, clipped to its range."""
        inverse_square = min((self._halving / noise) ** 2, 700.0)
        mu = mu_of(self.epsilon, self.delta)
        return min(max(mu / math.sqrt(rounds * math.expm1(inverse_square)), LEAST_RATIO), 1.0)


@lru_cache(maxsize=64)
def least_certified(sampling: SamplingLaw, relation: Relation) -> float:
    """The least noise multiplier that is planned: that ``pld`` certifies under sampling.

    Args:
        sampling: sampling law.
        relation: neighbouring relation.
    """
    from privplan.accounting.noise_families import dominating_pairs
    from privplan.accounting.pld.dominating_pairs import LARGEST_SHIFT

    if sampling.law.everyone:
        return NOISE_RANGE[0]
    found = dominating_pairs(Release(1.0, 0.5, sampling), relation)
    pairs = [pair for pair in (*found.upper, *found.lower) if isinstance(pair, Pair)]
    return max(pair.shift for pair in pairs) * _ABOVE_LEAST / LARGEST_SHIFT


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
) -> SearchResult:
    """Search for the largest unknown whose history keeps the target's budget.

    Args:
        target: budget, relation and accountant.
        history: unknown -> releases; their epsilon must not decrease with the unknown.
        start: first value to try.
        low: smallest value.
        high: largest value.
        tolerance: largest difference of the ends of the final bracket.
        integer: values are logarithms of integers.
        start_is_close: whether the start is within some percent of the result, so that a better
            one need not be estimated.
        of_noise: whether the unknown is the noise, so that values which the accountant does not
            cover are on the side that exceeds the budget.
    """

    def spent(argument: float) -> float:
        try:
            return target.spent(history(argument))
        except TooLittleNoiseError:
            if not of_noise:
                raise
            return math.inf

    def search(
        cost: Callable[[float], float], budget: float, first: float, slope: float
    ) -> SearchResult:
        return largest_affordable(
            cost,
            budget,
            start=first,
            low=low,
            high=high,
            tolerance=tolerance,
            integer=integer,
            slope=slope,
        )

    slope = 1.0
    coarse = coarse_accountant(target.accountant, _GUESS_TOLERANCE)
    if coarse is not None and not start_is_close:
        first = min(max(start, low), high)
        start, slope = _estimated_start(target, history, first, coarse, search)
    return search(spent, target.epsilon, start, slope)


def coarse_accountant(accountant: Accountant, tolerance: float) -> Accountant | None:
    """The accountant with a larger tolerance, which is faster; None when it has no tolerance."""
    if accountant.name != PLD:
        return None
    from privplan.accounting.pld.accountant import PldAccountant

    return cast(Accountant, PldAccountant(tolerance=tolerance))


def _estimated_start(
    target: CalibrationTarget,
    history: Callable[[float], History],
    start: float,
    coarse_accountant: Accountant,
    search: Callable[[Callable[[float], float], float, float, float], SearchResult],
) -> tuple[float, float]:
    """Estimate of the solution, and of the slope of log epsilon there.

    RDP is much cheaper and its bound has nearly the shape of the true epsilon: scale it to a coarse
    epsilon at the start, and solve it for the budget. A second coarse epsilon there determines the
    slope, which corrects the estimate.
    """
    rdp = replace(target, accountant=by_name("rdp"))
    coarse = replace(target, accountant=coarse_accountant)
    try:
        value, scale = coarse.estimate(history(start)), rdp.spent(history(start))
    except TooLittleNoiseError:
        return start, 1.0
    if not (0 < value < math.inf and 0 < scale < math.inf):
        return start, 1.0
    budget = target.epsilon * scale / value
    second = search(lambda x: rdp.spent(history(x)), budget, start, 1.0).feasible
    if second is None or abs(second - start) < 1e-3:
        return start, 1.0
    try:
        second_value = coarse.estimate(history(second))
    except TooLittleNoiseError:
        return start, 1.0
    if not 0 < second_value < math.inf:
        return start, 1.0
    slope = math.log(second_value / value) / (second - start)
    if not 0.05 < slope < 100:
        return second, 1.0
    return second - math.log(second_value / target.epsilon) / slope, slope


def checked_target(
    epsilon: float,
    delta: float | None,
    sampling: SamplingLaw | str,
    relation: Relation | str,
    accountant: str | Accountant,
    given: dict[str, float],
) -> CalibrationTarget:
    """The target, with the parameters ``given`` checked against their ranges.

    Raises:
        InputError: with every fault.
        UnsupportedError: when the accountant does not cover the sampling law and relation.
    """
    faults = []
    if not 0 < epsilon < math.inf:
        faults.append(Fault("epsilon", "must be positive and finite", epsilon))
    if delta is None or not 0 < delta < 1:
        faults.append(Fault("delta", "must be in (0, 1)", delta))
    for field, value in given.items():
        least, most = _RANGES[field]
        if not least <= value <= most:
            ends = (f"{end}" if isinstance(end, int) else f"{end:g}" for end in (least, most))
            faults.append(Fault(field, f"must be in [{', '.join(ends)}]", value))
        elif field in ("rounds", "clients") and value != int(value):
            faults.append(Fault(field, "must be a whole number", value))
    try:
        law = SamplingLaw(sampling)
    except ValueError:
        faults.append(Fault("sampling", f"must be one of {', '.join(SamplingLaw)}", sampling))
    if relation not in tuple(Relation):
        faults.append(Fault("relation", f"must be one of {', '.join(Relation)}", relation))
    if faults or delta is None:
        raise InputError(faults)
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    target = CalibrationTarget(epsilon, delta, law, Relation(relation), chosen)
    ratio = 1.0 if target.sampling.law.everyone else 0.5
    reason = chosen.why_not(target.history(1.0, ratio, 1), target.relation)
    if reason is not None:
        raise UnsupportedError(f"{chosen.name}: {reason}")
    return target
