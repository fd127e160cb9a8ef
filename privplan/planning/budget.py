"""What the noise of a group depends on, and its central limit under sampling.

In the central limit a run of T rounds is one Gaussian mechanism of parameter mu (Bu et
al. 2020, "Deep learning with Gaussian differential privacy"): mu^2 is T times the
variance of the privacy loss of a round. That gives sigma in closed form, to within some
percent, and exact noise multipliers are searched for from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.calibrate import least_certified
from privplan.accounting.families import dominating_pairs
from privplan.accounting.gdp import mu_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.laws.law import Kind, Pair
from privplan.planning.problem import Problem

Floats = NDArray[np.float64]

# sinh and exp of more would overflow; from here on the slope is its limit.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Budget:
    """What the noise multiplier of a group depends on, except its sampling ratio."""

    epsilon: float
    delta: float
    rounds: int
    sampling: SamplingLaw
    relation: Relation

    @property
    def chances(self) -> int:
        """How often a person can be drawn."""
        return self.rounds * self.sampling.law.contributions

    @property
    def sensitivity(self) -> float:
        """Distance of neighbouring sums in clipping norms (s)."""
        return float(self.sampling.law.sensitivity(self.relation))

    @property
    def lowest_log_noise(self) -> float:
        """Log of the smallest noise multiplier that is certified under sampling."""
        return math.log(least_certified(self.sampling, self.relation))

    @property
    def squared_mu_per_round(self) -> float:
        """mu^2 / T, the variance of a round's loss that spends the budget."""
        return _mu(self.epsilon, self.delta) ** 2 / self.rounds

    @property
    def compares_mixtures(self) -> bool:
        """Whether a round's pair is of two mixtures, and not of one with its base."""
        return _compares_mixtures(self.sampling, self.relation)

    def history(self, ratio: float, noise: float) -> History:
        """Releases in which a client takes part."""
        release = Release(float(noise), float(ratio), self.sampling)
        return History.repeated(release, self.rounds)

    def central_log_noise(self, ratio: float) -> float:
        """Log sigma at which the central limit of sampled rounds meets the budget."""
        chance_square = ratio**2 / self.sampling.law.one_of
        variance = np.array([[self.squared_mu_per_round / chance_square]])
        log_noise, _ = central_limit(variance, self.sensitivity, self.compares_mixtures)
        return float(log_noise[0, 0])

    def steepness(self, log_noise: float) -> float:
        """-d log mu / d log sigma in the central limit under sampling.

        With x = s^2 / sigma^2, mu is proportional to the root of exp(x) - 1 for a
        mixture against its base, and to that of sinh(x / 4) for two mixtures.
        """
        exponent = (self.sensitivity / math.exp(log_noise)) ** 2
        exponent = min(exponent, _LARGEST_EXPONENT)
        if self.compares_mixtures:
            quarter = exponent / 4
            return quarter / math.tanh(quarter)
        return exponent / -math.expm1(-exponent)


@lru_cache(maxsize=64)
def _compares_mixtures(sampling: SamplingLaw, relation: Relation) -> bool:
    """Whether the pair of a law compares two mixtures, as under ``replace_one``.

    Whoever takes part for certain, or through several clients of one person, has a pair
    of another kind.
    """
    if sampling.law.everyone or sampling.law.contributions > 1:
        return False
    # The kind of the pair is the same for any noise and ratio below 1.
    pair = dominating_pairs(Release(1.0, 0.5, sampling), relation).upper[0]
    return isinstance(pair, Pair) and pair.kind == Kind.SWAP


@lru_cache(maxsize=1024)
def _mu(epsilon: float, delta: float) -> float:
    """The parameter of Gaussian DP that a budget allows, for groups with equal ones."""
    return mu_of(epsilon, delta)


def central_limit(
    variance: Floats, sensitivity: float | Floats, compares_mixtures: bool
) -> tuple[Floats, Floats]:
    """Log sigma of the central limit, and its slope in log q.

    The variance of the loss of a round is q^2 (exp(s^2 / sigma^2) - 1) for a mixture
    against its base, and 4 q^2 sinh(1 / sigma^2) for two mixtures whose centres are
    s = 2 apart.

    Args:
        variance: mu^2 / (q^2 T), the variance of a round over the squared ratio.
        sensitivity: s, distance of neighbouring sums in clipping norms.
        compares_mixtures: which of the two formulas holds.
    """
    # 1 / sigma^2 solves the formula above; its slope in -2 log q stands below it.
    if compares_mixtures:
        quarter = variance / 4
        precision = np.arcsinh(quarter)
        change = quarter / np.sqrt(1 + quarter**2)
    else:
        precision = np.log1p(variance) / sensitivity**2
        change = variance / (1 + variance) / sensitivity**2
    return -0.5 * np.log(precision), change / precision


def budget_of(problem: Problem, group: int) -> Budget:
    """The budget of a group with all that its noise depends on."""
    return Budget(
        epsilon=problem.epsilons[group],
        delta=problem.deltas[group],
        rounds=problem.rounds_of(group),
        sampling=problem.laws[group] if problem.laws else problem.sampling,
        relation=problem.relation,
    )


def history_of(problem: Problem, group: int, ratio: float, noise: float) -> History:
    """Releases in which a client of a group takes part."""
    return budget_of(problem, group).history(ratio, noise)
