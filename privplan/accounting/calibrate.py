"""A calibration question: the budget, the cell and the accountant, checked together.

Solve for one parameter of a plan so that it just keeps a budget of (epsilon, delta).

Every answer is on the safe side: the accountant, asked again, says at most ``epsilon``.
Cost grows with sampling ratio, rounds and cohort and falls with noise, so each question
is one search for the edge of the budget, started at the central-limit value. The search
needs few evaluations of the accountant: a secant on logarithms, then one step to each side
of the predicted edge.

Calibration by bisection with a tolerance on epsilon, as published numbers were made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from privplan.accounting import closed_form
from privplan.accounting.accountant import Accountant, checked_delta
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.gdp import mu_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.search import SearchResult, largest_affordable
from privplan.errors import Fault, InfeasibleError, InputError, UnsupportedError

NOISE_RANGE = (1e-2, 1e4)
"""Noise multipliers that are searched."""
LEAST_RATIO = 1e-9
MOST_ROUNDS = 10_000_000
LEAST_DELTA = 1e-15
PLD = "pld"
_ROUGH = 1e-2


@dataclass(frozen=True)
class CalibrationTarget:
    """What stays the same while one parameter is searched."""

    epsilon: float
    delta: float
    sampling: SamplingLaw
    relation: Relation
    accountant: Accountant

    def cost(self, noise: float, ratio: float, rounds: float, delta: float | None = None) -> float:
        """Upper bound on epsilon of a plan."""
        release = Release(noise, min(ratio, 1.0), self.sampling)
        history = History.repeated(release, int(rounds))
        chosen = self.delta if delta is None else delta
        return self.accountant.epsilon(history, chosen, self.relation).upper

    def middle(self, noise: float, ratio: float, rounds: float) -> float:
        """A guess at epsilon on neither side: between lower and upper bound."""
        release = Release(noise, min(ratio, 1.0), self.sampling)
        history = History.repeated(release, int(rounds))
        bounds = self.accountant.epsilon(history, self.delta, self.relation)
        usable = 0 < bounds.lower <= bounds.upper < math.inf
        return math.sqrt(bounds.lower * bounds.upper) if usable else bounds.upper

    def where(self) -> str:
        """The cell in words, for messages."""
        return (
            f"epsilon {self.epsilon:g} at delta {self.delta:g} ({self.sampling} sampling, "
            f"{self.relation}, accountant {self.accountant.name})"
        )


def calibration_target(
    epsilon: float,
    delta: float,
    sampling: SamplingLaw | str,
    relation: Relation | str,
    accountant: str | Accountant,
    given: dict[str, tuple[float, float, float]],
) -> CalibrationTarget:
    """The question, with everything that is given checked: all faults at once.

    Args:
        epsilon: budget.
        delta: failure probability.
        sampling: sampling law.
        relation: neighbouring relation.
        accountant: name or accountant.
        given: field -> (value, least, most), both ends allowed.

    Raises:
        InputError: with every fault.
        UnsupportedError: when the accountant does not cover the cell.
    """
    faults = []
    if not 0 < epsilon < math.inf:
        faults.append(Fault("epsilon", "must be positive and finite", epsilon))
    if not 0 < delta < 1:
        faults.append(Fault("delta", "must be in (0, 1)", delta))
    for field, (value, least, most) in given.items():
        if not least <= value <= most:
            faults.append(Fault(field, f"must be in [{least:g}, {most:g}]", value))
        elif field in ("rounds", "clients") and value != int(value):
            faults.append(Fault(field, "must be a whole number", value))
    if sampling not in tuple(SamplingLaw):
        faults.append(Fault("sampling", f"must be one of {', '.join(SamplingLaw)}", sampling))
    if relation not in tuple(Relation):
        faults.append(Fault("relation", f"must be one of {', '.join(Relation)}", relation))
    if faults:
        raise InputError(faults)
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    question = CalibrationTarget(epsilon, delta, SamplingLaw(sampling), Relation(relation), chosen)
    probe = Release(1.0, 1.0 if question.sampling is SamplingLaw.FULL else 0.5, question.sampling)
    reason = chosen.why_not(History.repeated(probe, 1), question.relation)
    if reason is not None:
        raise UnsupportedError(f"{chosen.name}: {reason}")
    return question


def central_noise(question: CalibrationTarget, ratio: float, rounds: float) -> float:
    """Noise multiplier at which the central limit meets the budget, clipped to the range."""
    square = mu_of(question.epsilon, question.delta) ** 2 / rounds
    sigma: float = 1 / math.sqrt(square if ratio == 1 else math.log1p(square / ratio**2))
    return min(max(sigma * _halving(question), NOISE_RANGE[0]), NOISE_RANGE[1])


def _halving(question: CalibrationTarget) -> float:
    """2 where neighbours are two clipping norms apart, else 1."""
    fixed = question.sampling is SamplingLaw.FIXED_SIZE
    return 2.0 if fixed or question.relation is Relation.REPLACE_ONE else 1.0


def central_ratio(question: CalibrationTarget, noise: float, rounds: float) -> float:
    """Sampling ratio at which the central limit meets the budget, clipped to its range."""
    inverse_square = min((_halving(question) / noise) ** 2, 700.0)
    mu = mu_of(question.epsilon, question.delta)
    return min(max(mu / math.sqrt(rounds * math.expm1(inverse_square)), LEAST_RATIO), 1.0)


def quick(accountant: Accountant) -> Accountant | None:
    """A rougher and faster version of an accountant; None where there is none."""
    if accountant.name != PLD:
        return None
    from privplan.accounting.pld.accountant import PldAccountant

    return cast(Accountant, PldAccountant(tolerance=_ROUGH))


Place = Callable[[float], tuple[float, float, float]]
"""Argument of a search -> noise multiplier, sampling ratio, rounds."""


def edge_of(
    question: CalibrationTarget,
    place: Place,
    *,
    start: float,
    low: float,
    high: float,
    tolerance: float,
    whole: bool = False,
    known: bool = False,
) -> SearchResult:
    """The edge of the question's budget along one parameter.

    Args:
        question: what is asked.
        place: what the argument of the search stands for; cost must grow with it.
        start: first argument to try.
        low: smallest argument.
        high: largest argument.
        tolerance: how close the ends of the bracket must be.
        whole: arguments are logarithms of whole numbers.
        known: whether the start is near the edge, so that no guess is needed.
    """

    def search(
        cost: Callable[[float], float], budget: float, at: float, slope: float
    ) -> SearchResult:
        return largest_affordable(
            cost,
            budget,
            start=at,
            low=low,
            high=high,
            tolerance=tolerance,
            whole=whole,
            slope=slope,
        )

    slope = 1.0
    rough = quick(question.accountant)
    if rough is not None and not known:
        start, slope = _guess(question, place, min(max(start, low), high), rough, search)
    return search(lambda at: question.cost(*place(at)), question.epsilon, start, slope)


def _guess(
    question: CalibrationTarget,
    place: Place,
    start: float,
    rough: Accountant,
    search: Callable[[Callable[[float], float], float, float, float], SearchResult],
) -> tuple[float, float]:
    """Where the edge may be, and the slope of log cost there.

    The Rényi bound is a thousand times faster and has nearly the shape of the true cost: scale
    it to a rough cost at the start, and solve it for the budget. A second rough cost there
    tells the slope, which leads to the guess.
    """
    renyi = replace(question, accountant=by_name("rdp"))
    coarse = replace(question, accountant=rough)

    def model(at: float) -> float:
        return renyi.cost(*place(at))

    value, scale = coarse.middle(*place(start)), model(start)
    if not (0 < value < math.inf and 0 < scale < math.inf):
        return start, 1.0
    edge = search(model, question.epsilon * scale / value, start, 1.0)
    second = edge.inside
    if second is None or abs(second - start) < 1e-3:
        return start, 1.0
    over = coarse.middle(*place(second))
    if not 0 < over < math.inf:
        return start, 1.0
    slope = math.log(over / value) / (second - start)
    if not 0.05 < slope < 100:
        return second, 1.0
    return second - math.log(over / question.epsilon) / slope, slope


def noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float,
    rounds: int,
    sampling: SamplingLaw | str = "poisson",
    relation: Relation | str = "add_remove",
    accountant: str | Accountant = "pld",
    rtol: float = 1e-4,
    near: float | None = None,
) -> float:
    """The smallest noise multiplier that keeps the budget, to relative precision ``rtol``.

    Args:
        epsilon: budget, positive and finite.
        delta: failure probability, in (0, 1).
        sampling_ratio: chance of a client to take part in a round, in (0, 1].
        rounds: number of rounds, 1 or more.
        sampling: sampling law; ``full`` needs a sampling ratio of 1.
        relation: neighbouring relation.
        accountant: name in the catalogue, or an accountant.
        rtol: relative precision of the answer.
        near: where to look first, when the answer is known within some percent.

    Returns:
        Noise standard deviation over the clipping norm, in ``NOISE_RANGE``; at most
        ``1 + rtol`` times the smallest one, and never below it. With ``closed_form`` it is
        the formula itself, whose conditions ``closed_form.failed_conditions`` checks.

    Raises:
        InputError: when a value is out of range.
        InfeasibleError: when no noise multiplier in the range keeps the budget.
        UnsupportedError: when the accountant does not cover the cell.
    """
    question = calibration_target(
        epsilon,
        delta,
        sampling,
        relation,
        accountant,
        {"sampling_ratio": (sampling_ratio, LEAST_RATIO, 1), "rounds": (rounds, 1, MOST_ROUNDS)},
    )
    if question.accountant.name == closed_form.ClosedFormAccountant.name:
        return _closed_form_noise(question, sampling_ratio, rounds)

    def place(negative_log: float) -> tuple[float, float, float]:
        return math.exp(-negative_log), sampling_ratio, rounds

    start = -math.log(near or central_noise(question, sampling_ratio, rounds))
    low, high = (-math.log(bound) for bound in reversed(NOISE_RANGE))
    edge = edge_of(
        question, place, start=start, low=low, high=high, tolerance=rtol, known=near is not None
    )
    if edge.inside is None:
        raise InfeasibleError(
            f"noise_multiplier: none in [{NOISE_RANGE[0]:g}, {NOISE_RANGE[1]:g}] can meet "
            f"{question.where()} at sampling ratio {sampling_ratio:g} over {rounds} rounds"
        )
    return math.exp(-edge.inside)


def _closed_form_noise(question: CalibrationTarget, ratio: float, rounds: int) -> float:
    """Theorem 1 solved for sigma, in the range; halved noise counts twice."""
    release = Release(1.0, ratio, question.sampling)
    factor = closed_form.effective_noise(release, question.relation)
    sigma = closed_form.noise_multiplier(question.epsilon, question.delta, ratio, rounds) / factor
    while question.cost(sigma, ratio, rounds) > question.epsilon:  # rounding in the last digit
        sigma *= 1 + 4e-16
    if not sigma <= NOISE_RANGE[1]:
        raise InfeasibleError(
            f"noise_multiplier: none up to {NOISE_RANGE[1]:g} can meet {question.where()}; "
            f"Theorem 1 asks for {sigma:.4g}"
        )
    return max(sigma, NOISE_RANGE[0])


def sampling_ratio(
    epsilon: float,
    delta: float,
    *,
    noise_multiplier: float,
    rounds: int,
    sampling: SamplingLaw | str = "poisson",
    relation: Relation | str = "add_remove",
    accountant: str | Accountant = "pld",
    rtol: float = 1e-4,
) -> float:
    """The largest sampling ratio that keeps the budget, to relative precision ``rtol``.

    Args, units and errors are those of ``noise_multiplier``.

    Returns:
        Sampling ratio in (0, 1]; 1 when even full participation keeps the budget.
    """
    given = {
        "noise_multiplier": (noise_multiplier, *NOISE_RANGE),
        "rounds": (rounds, 1, MOST_ROUNDS),
    }
    question = calibration_target(epsilon, delta, sampling, relation, accountant, given)
    if question.sampling is SamplingLaw.FULL:
        raise InputError.one("sampling", "has no sampling ratio to solve for", sampling)

    def place(log_ratio: float) -> tuple[float, float, float]:
        return noise_multiplier, math.exp(log_ratio), rounds

    start = math.log(central_ratio(question, noise_multiplier, rounds))
    edge = edge_of(
        question, place, start=start, low=math.log(LEAST_RATIO), high=0.0, tolerance=rtol
    )
    if edge.inside is None:
        raise InfeasibleError(
            f"sampling_ratio: none from {LEAST_RATIO:g} to 1 can meet {question.where()} with "
            f"noise multiplier {noise_multiplier:g} over {rounds} rounds"
        )
    return math.exp(edge.inside)


def rounds(
    epsilon: float,
    delta: float,
    *,
    noise_multiplier: float,
    sampling_ratio: float,
    sampling: SamplingLaw | str = "poisson",
    relation: Relation | str = "add_remove",
    accountant: str | Accountant = "pld",
) -> int:
    """The largest number of rounds that keeps the budget.

    Args, units and errors are those of ``noise_multiplier``.

    Returns:
        Rounds, from 1 to ``MOST_ROUNDS``.
    """
    given = {
        "noise_multiplier": (noise_multiplier, *NOISE_RANGE),
        "sampling_ratio": (sampling_ratio, LEAST_RATIO, 1.0),
    }
    question = calibration_target(epsilon, delta, sampling, relation, accountant, given)

    def place(log_rounds: float) -> tuple[float, float, float]:
        return noise_multiplier, sampling_ratio, round(math.exp(log_rounds))

    ratio_at_one = central_ratio(question, noise_multiplier, 1) / sampling_ratio
    most = math.log(MOST_ROUNDS)
    start = min(max(2 * math.log(ratio_at_one), 0.0), most)
    edge = edge_of(question, place, start=start, low=0.0, high=most, tolerance=1e-4, whole=True)
    return _whole(edge, "rounds", question, f"sampling ratio {sampling_ratio:g}", noise_multiplier)


def cohort(
    epsilon: float,
    delta: float,
    *,
    noise_multiplier: float,
    clients: int,
    rounds: int,
    sampling: SamplingLaw | str = "poisson",
    relation: Relation | str = "add_remove",
    accountant: str | Accountant = "pld",
) -> int:
    """The largest (expected) cohort of ``clients`` that keeps the budget.

    Args:
        epsilon: budget, positive and finite.
        delta: failure probability, in (0, 1).
        noise_multiplier: noise standard deviation over the clipping norm.
        clients: size of the group, 1 or more.
        rounds: number of rounds, 1 or more.
        sampling: sampling law.
        relation: neighbouring relation.
        accountant: name in the catalogue, or an accountant.

    Returns:
        Cohort m, from 1 to ``clients``; the sampling ratio is m / clients.

    Raises:
        InputError: when a value is out of range.
        InfeasibleError: when not even one client a round keeps the budget.
        UnsupportedError: when the accountant does not cover the cell.
    """
    given = {
        "noise_multiplier": (noise_multiplier, *NOISE_RANGE),
        "clients": (clients, 1, 1 / LEAST_RATIO),
        "rounds": (rounds, 1, MOST_ROUNDS),
    }
    question = calibration_target(epsilon, delta, sampling, relation, accountant, given)
    if question.sampling is SamplingLaw.FULL:
        raise InputError.one("sampling", "has no cohort to solve for", sampling)

    def place(log_cohort: float) -> tuple[float, float, float]:
        return noise_multiplier, round(math.exp(log_cohort)) / clients, rounds

    most = math.log(clients)
    start = math.log(central_ratio(question, noise_multiplier, rounds)) + most
    edge = edge_of(
        question, place, start=max(start, 0.0), low=0.0, high=most, tolerance=1e-4, whole=True
    )
    return _whole(edge, "cohort", question, f"{clients} clients, {rounds} rounds", noise_multiplier)


def _whole(
    edge: SearchResult, field: str, question: CalibrationTarget, setting: str, noise: float
) -> int:
    if edge.inside is None:
        raise InfeasibleError(
            f"{field}: not even 1 can meet {question.where()} with noise multiplier "
            f"{noise:g}, {setting}"
        )
    return round(math.exp(edge.inside))


def delta_for(
    epsilon: float,
    *,
    noise_multiplier: float,
    sampling_ratio: float,
    rounds: int,
    sampling: SamplingLaw | str = "poisson",
    relation: Relation | str = "add_remove",
    accountant: str | Accountant = "pld",
    rtol: float = 1e-3,
) -> float:
    """The smallest delta at which ``epsilon`` suffices, to relative precision ``rtol``.

    Args, units and errors are those of ``noise_multiplier``.

    Returns:
        delta in [``LEAST_DELTA``, 1), on the safe (larger) side.
    """
    given = {
        "noise_multiplier": (noise_multiplier, *NOISE_RANGE),
        "sampling_ratio": (sampling_ratio, LEAST_RATIO, 1.0),
        "rounds": (rounds, 1, MOST_ROUNDS),
    }
    question = calibration_target(epsilon, 0.5, sampling, relation, accountant, given)

    def cost(negative_log: float) -> float:
        return question.cost(noise_multiplier, sampling_ratio, rounds, math.exp(-negative_log))

    least, most = -math.log1p(-1e-9), -math.log(LEAST_DELTA)
    edge = largest_affordable(cost, epsilon, start=12.0, low=least, high=most, tolerance=rtol)
    if edge.inside is None:
        raise InfeasibleError(
            f"delta: none below 1 gives epsilon {epsilon:g} with noise multiplier "
            f"{noise_multiplier:g}, sampling ratio {sampling_ratio:g}, {rounds} rounds "
            f"({sampling} sampling, {relation}, accountant {question.accountant.name})"
        )
    return checked_delta(math.exp(-edge.inside))


def noise_multiplier_by_bisection(
    epsilon: float,
    delta: float,
    *,
    sampling_ratio: float,
    rounds: int,
    accountant: str | Accountant = "rdp",
    epsilon_tolerance: float = 0.01,
) -> float:
    """A noise multiplier as widespread calibrators find it, for comparison with papers.

    They double sigma from 10 until the budget is kept, then halve the bracket until the
    epsilon found lies within ``epsilon_tolerance`` of the budget. At the default of 0.01
    (Opacus') that leaves up to 2% of unspent epsilon and of sigma^2: the published 13.20 for
    SVHN is 12.93 when solved exactly. Poisson sampling, add/remove.

    Args and errors are those of ``noise_multiplier``.
    """
    given = {
        "sampling_ratio": (sampling_ratio, LEAST_RATIO, 1.0),
        "rounds": (float(rounds), 1, MOST_ROUNDS),
        "epsilon_tolerance": (epsilon_tolerance, 1e-9, math.inf),
    }
    question = calibration_target(epsilon, delta, "poisson", "add_remove", accountant, given)
    low, high = 0.0, 10.0
    found = question.cost(high, sampling_ratio, rounds)
    while found > epsilon:
        high *= 2
        if high > NOISE_RANGE[1]:
            raise InfeasibleError(f"noise_multiplier: none can meet {question.where()}")
        found = question.cost(high, sampling_ratio, rounds)
    while epsilon - found > epsilon_tolerance:
        middle = (low + high) / 2
        cost = question.cost(middle, sampling_ratio, rounds)
        if cost < epsilon:
            high, found = middle, cost
        else:
            low = middle
    return high
