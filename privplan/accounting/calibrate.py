"""Calibration of T equal releases: the value of one parameter that just keeps a budget.

Cost grows with sampling ratio, rounds and cohort and falls with noise and delta, so searches run
over log q, log T, log m, -log sigma and -log delta. They start at the value of the central limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from privplan.accounting import closed_form
from privplan.accounting.accountant import Accountant, checked_delta
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.gdp import largest_affordable, mu_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import (
    Fault,
    InfeasibleError,
    InputError,
    TooLittleNoiseError,
    UnsupportedError,
    checked_call,
)
from privplan.laws.law import Pair

# --- The solver of every calibration: the largest unknown whose history keeps a privacy budget. --
# A target is a budget with the accountant whose upper bound on epsilon must keep it. ``solve``
# takes a target and the history of releases as a function of one unknown; the result was
# evaluated by the target's accountant, so that it never overspends.

NOISE_RANGE = (1e-2, 1e4)  # smallest and largest noise multiplier of a search
LEAST_RATIO = 1e-9
MOST_ROUNDS = 10_000_000
PLD = "pld"
_SLACK = 2e-6  # how far a small epsilon may stay below its budget, up to 2e-3 of it
_STEEP = 1e-2  # epsilon below which its exact value tells a search nothing
_MANY = 100_000  # rounds from which a bound is computed no more closely than decides on the budget
_SMALL = (
    1e-3  # sampling ratio below which it is not either: a closer one takes much longer
)
LEAST_EPSILON = (
    1e-6  # below, ``pld`` cannot tell it from 0 to the tolerance of a search
)
_GUESS_TOLERANCE = 1e-2  # of the coarse bounds that tell where a search starts
_ALIKE = 0.95  # bounds that are further apart stay so, however finely they are computed
_GUESSES, _GUESSED = (
    8,
    5e-3,
)  # coarse epsilons at most; the step after which none is worth it
_ABOVE_LEAST = 1.0001  # so that the least noise stays certifiable in spite of rounding
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

        near = PldAccountant(decide=self.epsilon)
        return replace(self, accountant=near) if self.accountant.name == PLD else self

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
        one_of = self.sampling.law.one_of
        square, ratio = (
            mu_of(self.epsilon, self.delta) ** 2 / rounds / one_of,
            ratio / one_of,
        )
        sigma: float = 1 / math.sqrt(
            square if ratio == 1 else math.log1p(square / ratio**2)
        )
        return min(max(sigma * self._halving, NOISE_RANGE[0]), NOISE_RANGE[1])

    def central_ratio(self, noise: float, rounds: float) -> float:
        """Sampling ratio at which the central limit meets the budget, clipped to its range."""
        inverse_square = min((self._halving / noise) ** 2, 700.0)
        mu = mu_of(self.epsilon, self.delta)
        return min(
            max(mu / math.sqrt(rounds * math.expm1(inverse_square)), LEAST_RATIO), 1.0
        )


@lru_cache(maxsize=64)
def least_certified(sampling: SamplingLaw, relation: Relation) -> float:
    """The least noise multiplier that is planned: that ``pld`` certifies under sampling."""
    from privplan.accounting.families import dominating_pairs
    from privplan.accounting.pld.pairs import LARGEST_SHIFT

    if sampling.law.everyone:
        return NOISE_RANGE[0]
    if (clients := sampling.law.contributions) > 1:
        return clients * _ABOVE_LEAST / LARGEST_SHIFT
    found = dominating_pairs(Release(1.0, 0.5, sampling), relation)
    shifts = [pair.shift for pair in found.upper if isinstance(pair, Pair)]
    most = max(shifts, default=float(sampling.law.sensitivity(relation)))
    return most * _ABOVE_LEAST / LARGEST_SHIFT


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

    Epsilon must not decrease with the unknown. With ``start_is_close`` no better start is
    estimated; ``of_noise`` says that the unknown is the noise, so that values which the accountant
    does not cover are on the side that exceeds the budget.
    """

    def spent(argument: float) -> float:
        try:
            return target.spent(history(argument))
        except TooLittleNoiseError:
            if not of_noise:
                raise
            return math.inf

    most, enough = max(history(low).rounds, history(high).rounds), 0.0
    ratio = min((release.sampling_ratio for release, _ in history(start)), default=1.0)
    if target.epsilon < _STEEP or most >= _MANY or ratio < _SMALL:
        close = max(2 * tolerance, min(_SLACK / target.epsilon, 2e-3))
        target, enough = target.decided, 0.0 if integer else close
    slope = 1.0
    if target.accountant.name == PLD and not start_is_close:
        start, slope = _estimated_start(target, history, start, low, high)
    search = partial(largest_affordable, start=start, low=low, high=high, slope=slope)
    return search(
        spent, target.epsilon, tolerance=tolerance, integer=integer, enough=enough
    )


def _estimated_start(
    target: CalibrationTarget,
    history: Callable[[float], History],
    start: float,
    low: float,
    high: float,
) -> tuple[float, float]:
    """Estimate of the solution by secants of coarse bounds, and of the slope of log epsilon."""
    from privplan.accounting.pld.accountant import PldAccountant

    coarse = PldAccountant(tolerance=_GUESS_TOLERANCE)
    argument, slope, before, end = (
        min(max(start, low), high),
        1.0,
        (math.nan, math.nan),
        high,
    )
    for _ in range(_GUESSES):
        try:
            bounds = coarse.epsilon(history(argument), target.delta, target.relation)
        except TooLittleNoiseError:
            break
        close = _ALIKE * bounds.upper < bounds.lower
        value = math.sqrt(bounds.lower * bounds.upper) if close else bounds.upper
        if not 0 < value < math.inf:
            break
        here = argument, math.log(value / target.epsilon)
        if (
            here[0] != before[0]
            and 0.05 < (here[1] - before[1]) / (here[0] - before[0]) < 100
        ):
            slope = (here[1] - before[1]) / (here[0] - before[0])
        low, high = (
            (low, min(high, argument)) if here[1] > 0 else (max(low, argument), high)
        )
        argument, before = argument - here[1] / slope, here
        beyond = argument >= high == end  # the range ends before the budget does
        if not low < argument < high:
            argument = high if beyond else (low + high) / 2
        if beyond or abs(argument - here[0]) < _GUESSED:
            break
    return argument, slope


def checked_target(
    epsilon: float,
    delta: float | None,
    sampling: SamplingLaw | str,
    relation: Relation | str,
    accountant: str | Accountant,
    given: dict[str, float],
) -> CalibrationTarget:
    """The target, with the parameters ``given`` checked against their ranges."""
    faults = []
    if not 0 < epsilon < math.inf:
        faults.append(Fault("epsilon", "must be positive and finite", epsilon))
    if delta is None or not 0 < delta < 1:
        faults.append(Fault("delta", "must be in (0, 1)", delta))
    for field, value in given.items():
        least, most = _RANGES[field]
        if not least <= value <= most:
            ends = (
                f"{end}" if isinstance(end, int) else f"{end:g}"
                for end in (least, most)
            )
            faults.append(Fault(field, f"must be in [{', '.join(ends)}]", value))
        elif field in ("rounds", "clients") and value != int(value):
            faults.append(Fault(field, "must be a whole number", value))
    try:
        law = SamplingLaw(sampling)
    except ValueError:
        faults.append(
            Fault("sampling", f"must be one of {', '.join(SamplingLaw)}", sampling)
        )
    if relation not in tuple(Relation):
        faults.append(
            Fault("relation", f"must be one of {', '.join(Relation)}", relation)
        )
    if faults or delta is None:
        raise InputError(faults)
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    target = CalibrationTarget(epsilon, delta, law, Relation(relation), chosen)
    ratio = 1.0 if target.sampling.law.everyone else 0.5
    reason = chosen.why_not(target.history(1.0, ratio, 1), target.relation)
    if reason is not None:
        raise UnsupportedError(f"{chosen.name}: {reason}")
    return target


LEAST_DELTA = 1e-15
_RTOL = 1e-4
_DELTA_RTOL = 1e-3

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
    """One parameter of T equal releases: the value that just keeps the budget."""
    given: dict[str, float | None] = {
        "noise_multiplier": noise_multiplier,
        "sampling_ratio": sampling_ratio,
        "rounds": rounds,
        "clients": clients,
    }
    if faults := parameter_faults(unknown, {**given, "delta": delta}):
        raise InputError(faults)
    known = {
        name: value for name in UNKNOWNS[unknown] if (value := given[name]) is not None
    }
    fixed_delta = 0.5 if unknown == "delta" else delta
    target = checked_target(epsilon, fixed_delta, sampling, relation, accountant, known)
    sampled = not target.sampling.law.everyone and known.get("sampling_ratio") != 1
    if target.accountant.name == PLD and sampled and epsilon < LEAST_EPSILON:
        rule = f"must be {LEAST_EPSILON:g} or more to solve for {unknown} by pld under sampling"
        raise InputError.one("epsilon", rule, epsilon)
    if unknown in ("sampling_ratio", "cohort") and target.sampling.law.everyone:
        rule = f"has no {unknown.replace('_', ' ')} to solve for"
        raise InputError.one("sampling", rule, sampling)
    if unknown == "delta":
        return _delta(target, **known)
    if unknown == "noise_multiplier" and target.accountant.name == "closed_form":
        return _closed_form_noise(target, **known)
    integer = unknown in ("rounds", "cohort")
    history, start, low, high, failure = _search(unknown, target, near, **known)
    result = solve(
        target,
        history,
        start=start,
        low=low,
        high=high,
        tolerance=_RTOL if integer else rtol,
        integer=integer,
        start_is_close=near is not None and unknown == "noise_multiplier",
        of_noise=unknown == "noise_multiplier",
    )
    if result is None:
        raise InfeasibleError(f"{unknown}: {failure}")
    if integer:
        return round(math.exp(result))
    if unknown != "noise_multiplier":
        return math.exp(result)
    noise = math.exp(-result)
    if (
        target.accountant.name == PLD
    ):  # the least that pld certifies, where that is as good
        least = least_certified(target.sampling, target.relation)
        if (
            abs(math.log(noise / least)) <= 2 * max(rtol, _RTOL)
            and target.spent(
                target.history(least, known["sampling_ratio"], known["rounds"])
            )
            <= target.epsilon
        ):
            return least
    return noise


def parameter_faults(unknown: str, values: Mapping[str, Any]) -> list[Fault]:
    """Faults of the parameters that are missing, or given although they are the unknown."""
    if unknown not in UNKNOWNS:
        return [Fault("solve_for", f"must be one of {', '.join(UNKNOWNS)}", unknown)]
    faults = [
        Fault(name, f"must be given to solve for {unknown}", None)
        for name in UNKNOWNS[unknown]
        if values[name] is None
    ]
    if values.get(unknown) is not None:
        faults.append(
            Fault(unknown, "must not be given when it is the unknown", values[unknown])
        )
    return faults


noise_multiplier = partial(calibrate, "noise_multiplier")
"""The smallest noise multiplier that keeps a budget; see ``calibrate``."""


def _search(
    unknown: str,
    target: CalibrationTarget,
    near: float | None,
    noise_multiplier: float = 0.0,
    sampling_ratio: float = 0.0,
    rounds: float = 0,
    clients: float = 0,
) -> tuple[Callable[[float], History], float, float, float, str]:
    """The history as a function of an unknown, its start and range, and the text of a failure."""
    noise, ratio, history = noise_multiplier, sampling_ratio, target.history
    with_noise = f"can meet {target} with noise multiplier {noise:g}"
    if unknown == "noise_multiplier":
        least, most = NOISE_RANGE
        return (
            lambda x: history(math.exp(-x), ratio, rounds),
            -math.log(near or target.central_noise(ratio, rounds)),
            -math.log(most),
            -math.log(least),
            f"none in [{least:g}, {most:g}] can meet {target} at sampling ratio {ratio:g} "
            f"over {rounds} rounds",
        )
    if unknown == "sampling_ratio":
        return (
            lambda x: history(noise, math.exp(x), rounds),
            math.log(target.central_ratio(noise, rounds)),
            math.log(LEAST_RATIO),
            0.0,
            f"none from {LEAST_RATIO:g} to 1 {with_noise} over {rounds} rounds",
        )
    if unknown == "rounds":
        high = math.log(MOST_ROUNDS)
        start = 2 * math.log(target.central_ratio(noise, 1) / ratio)
        return (
            lambda x: history(noise, ratio, round(math.exp(x))),
            min(max(start, 0.0), high),
            0.0,
            high,
            f"not even 1 {with_noise}, sampling ratio {ratio:g}",
        )
    high = math.log(clients)
    return (
        lambda x: history(noise, round(math.exp(x)) / clients, rounds),
        max(math.log(target.central_ratio(noise, rounds)) + high, 0.0),
        0.0,
        high,
        f"not even 1 {with_noise}, {clients} clients, {rounds} rounds",
    )


def _closed_form_noise(
    target: CalibrationTarget, sampling_ratio: float, rounds: float
) -> float:
    """Theorem 1 solved for sigma, in the range; halved noise counts twice."""
    factor = closed_form.effective_noise(
        Release(1.0, sampling_ratio, target.sampling), target.relation
    )
    budget = target.epsilon, target.delta
    sigma = closed_form.noise_multiplier(*budget, sampling_ratio, int(rounds)) / factor
    while target.spent(target.history(sigma, sampling_ratio, rounds)) > target.epsilon:
        sigma *= 1 + 4e-16  # the formula's last digit may be rounded down
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
    history = target.history(noise_multiplier, sampling_ratio, rounds)
    low, high, start = -math.log1p(-1e-9), -math.log(LEAST_DELTA), 12.0
    if target.accountant.name == PLD:
        from privplan.accounting.pld.accountant import compose

        known = compose(history, target.relation).delta(target.epsilon, _DELTA_RTOL)
        start = min(-math.log(max(known.upper, LEAST_DELTA)), high)
        candidate = min(known.upper * (1 + _DELTA_RTOL / 2), (1 + known.upper) / 2)
        tight = (
            1 > known.upper <= (1 + 1.5 * _DELTA_RTOL) * known.lower
            and candidate > LEAST_DELTA
        )
        if (
            tight
            and replace(target.decided, delta=candidate).spent(history)
            <= target.epsilon
        ):
            return checked_delta(candidate)
    result = largest_affordable(
        lambda x: replace(target.decided, delta=math.exp(-x)).spent(history),
        target.epsilon,
        start=start,
        low=low,
        high=high,
        tolerance=_DELTA_RTOL,
    )
    if result is None:
        raise InfeasibleError(
            f"delta: none below 1 gives epsilon {target.epsilon:g} with noise multiplier "
            f"{noise_multiplier:g}, sampling ratio {sampling_ratio:g}, {rounds} rounds "
            f"({target.cell})"
        )
    return checked_delta(math.exp(-result))


_BISECTED = 0.01  # Opacus' tolerance of epsilon


def noise_multiplier_by_bisection(
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float,
    rounds: int,
    accountant: str | Accountant = "rdp",
) -> float:
    """A noise multiplier as widespread calibrators find it, for comparison with papers.

    They double sigma from 10 until the budget is kept, then halve the bracket until epsilon lies
    within 0.01 of the budget, Opacus' default. That leaves up to 2% of unspent epsilon and of
    sigma^2: the published 13.20 for SVHN is 12.93 when solved exactly. Poisson sampling,
    add/remove; arguments and errors are those of ``calibrate``.
    """
    given = {"sampling_ratio": sampling_ratio, "rounds": float(rounds)}
    target = checked_target(epsilon, delta, "poisson", "add_remove", accountant, given)

    def spent(sigma: float) -> float:
        return target.spent(target.history(sigma, sampling_ratio, rounds))

    low, high = 0.0, 10.0
    while (spent_at_high := spent(high)) > epsilon:
        high *= 2
        if high > NOISE_RANGE[1]:
            raise InfeasibleError(f"noise_multiplier: none can meet {target}")
    while epsilon - spent_at_high > _BISECTED:
        middle = (low + high) / 2
        if (cost := spent(middle)) < epsilon:
            high, spent_at_high = middle, cost
        else:
            low = middle
    return high
