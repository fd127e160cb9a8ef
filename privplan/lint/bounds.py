"""Bounds on the epsilon of a mechanism as executed, also for laws that no plan uses.

``fixed_size``, ``poisson`` and ``full`` are composed by the project's accountant. The others are:

- ``with_replacement``: m independent uniform draws from n. Given the draws of the other units,
  the sums of neighbours (the unit absent) differ by at most 2 C per draw of the unit, and the
  number of these draws is binomial(m, 1/n): a mixture of Gaussians, which dominates (vectors
  reduce to scalars: Choquette-Choo et al. 2024, "Privacy Amplification for Matrix Mechanisms",
  arXiv 2310.15526).
- ``shuffle``: each unit in exactly one batch of every epoch. From above as if every unit were in
  a known batch. From below the sum of all releases, which is Gaussian, and the largest release
  of the first epoch (Chua et al. 2024, arXiv 2403.17673).
- ``round_robin``: each unit in known rounds, so that nothing is amplified.
"""

from __future__ import annotations

import math

import numpy as np

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.gdp import epsilon_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import PrivplanError
from privplan.lint.reading import Mechanism
from privplan.scipy_functions import log_ndtr

_SPENT_ON_TAILS = 1e-3
_GRID = 400


def epsilon(mechanism: Mechanism, rounds: int, delta: float, relation: Relation) -> Interval | None:
    """Bounds on the composed epsilon; None where a value that they need is not determined.

    Args:
        mechanism: as executed.
        rounds: number of releases.
        delta: failure probability, in (0, 1).
        relation: neighbouring relation.
    """
    if mechanism.known_epsilon is not None:
        return Interval(0.0, mechanism.known_epsilon * rounds)
    ratio = mechanism.sampling_ratio
    if mechanism.noise is None or mechanism.law is None or ratio is None:
        return None
    low, high = mechanism.noise
    if low == 0:
        return Interval(math.inf, math.inf)
    most = _bounds(mechanism, low, ratio, rounds, delta, relation)
    least = most if low == high else _bounds(mechanism, high, ratio, rounds, delta, relation)
    return Interval(least.lower, most.upper)


def _bounds(
    mechanism: Mechanism, noise: float, ratio: float, rounds: int, delta: float, relation: Relation
) -> Interval:
    distance = 2.0 if relation == Relation.REPLACE_ONE else 1.0
    if mechanism.law == "with_replacement":
        return _with_replacement(mechanism, noise, rounds, delta)
    if mechanism.law == "shuffle":
        return _shuffled(noise / distance, ratio, rounds, delta)
    if mechanism.law == "round_robin":
        mu = distance * math.sqrt(max(1, math.floor(ratio * rounds))) / noise
        most = distance * math.sqrt(max(1, math.ceil(ratio * rounds))) / noise
        return Interval(epsilon_of(mu, delta), epsilon_of(most, delta))
    law = SamplingLaw(str(mechanism.law))
    history = History.repeated(Release(noise, ratio, law), rounds)
    try:
        return accountant("pld").epsilon(history, delta, relation)
    except PrivplanError:  # too little noise to compose
        return _little_noise(noise / law.law.sensitivity(relation), ratio, rounds, delta)


def _little_noise(noise: float, ratio: float, rounds: int, delta: float) -> Interval:
    """One sampled release from below, all releases without sampling from above.

    The hockey-stick divergence of a sampled release is ``ratio`` times that of the release
    itself at ``log(1 + (e^epsilon - 1) / ratio)``.
    """
    upper = epsilon_of(math.sqrt(rounds) / noise, delta)
    if delta >= ratio:
        return Interval(0.0, upper)
    single = epsilon_of(1 / noise, delta / ratio)
    below = math.log1p(ratio * math.expm1(single)) if single < 600 else single + math.log(ratio)
    return Interval(min(below, upper), upper)


def _with_replacement(mechanism: Mechanism, noise: float, rounds: int, delta: float) -> Interval:
    """From below every unit that is drawn counts once, from above the mixture itself.

    A unit is drawn at least once with probability ``1 - (1 - 1/n)^m``; a mixture grows with its
    shifts. From above the rare numbers of draws are added to delta.
    """
    draws, units = round(mechanism.cohort or 0), int(mechanism.population or 1)
    drawn = -math.expm1(draws * math.log1p(-1 / units)) if units > 1 else 1.0
    lower = _composed(noise, drawn, rounds, delta)
    from scipy.stats import binom  # slow to import

    most = max(1, int(binom.isf(delta * _SPENT_ON_TAILS / rounds, draws, 1 / units)))
    missing = rounds * float(binom.sf(most, draws, 1 / units))
    from dp_accounting.pld import privacy_loss_distribution as pld

    chances = binom.pmf(np.arange(most + 1), draws, 1 / units)
    chances[0] = 1 - float(chances[1:].sum())
    spread = drawn * math.sqrt(math.expm1(min((2 / noise) ** 2, 50.0)) * rounds)
    mixture = pld.from_mixture_gaussian_mechanism(
        noise,
        [2.0 * k for k in range(most + 1)],
        list(chances),
        value_discretization_interval=min(1e-2, max(1e-4, spread / math.sqrt(rounds) / 50)),
    )
    upper = float(mixture.self_compose(rounds).get_epsilon_for_delta(delta - missing))
    return Interval(min(lower, upper), upper)


def _composed(noise: float, ratio: float, rounds: int, delta: float) -> float:
    """Lower bound of a unit that takes part with this probability and displaces another one."""
    history = History.repeated(Release(noise, ratio, SamplingLaw.FIXED_SIZE), rounds)
    try:
        return accountant("pld").epsilon(history, delta, Relation.ADD_REMOVE).lower
    except PrivplanError:
        return _little_noise(noise / 2, ratio, rounds, delta).lower


def _shuffled(noise: float, ratio: float, rounds: int, delta: float) -> Interval:
    batches = max(1, round(1 / ratio))
    epochs = max(1, math.ceil(rounds / batches))
    whole = rounds // batches
    upper = epsilon_of(math.sqrt(epochs) / noise, delta)
    lower = epsilon_of(math.sqrt(whole / batches) / noise, delta) if whole else 0.0
    if whole:
        lower = max(lower, _largest_release(noise, batches, delta))
    return Interval(min(lower, upper), upper)


def _largest_release(noise: float, batches: int, delta: float) -> float:
    """Lower bound from the event that the largest release of an epoch exceeds a threshold."""
    at = np.linspace(-2 * noise, 2 + 8 * noise, _GRID)
    none = batches * log_ndtr(at / noise)
    shifted = (batches - 1) * log_ndtr(at / noise) + log_ndtr((at - 1) / noise)
    without, with_unit = -np.expm1(none), -np.expm1(shifted)
    usable = (with_unit > delta) & (without > 0)
    if not usable.any():
        return 0.0
    return float(np.log((with_unit[usable] - delta) / without[usable]).max(initial=0.0))
