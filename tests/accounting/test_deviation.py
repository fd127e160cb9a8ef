"""What deviations could carry, against sums over a grid of outputs."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from privplan.accounting.deviation import DELTA_SHARE, carried


@pytest.mark.parametrize("deviation", [1e-6, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("rounds", [1, 50])
def test_the_bound_is_that_of_its_formula(deviation, rounds):
    """By the closed form of the shift's delta, with scipy's normal distribution."""
    epsilon = 0.5
    delta = 1e-4
    added = carried(deviation, rounds, epsilon, delta)
    e1 = added.epsilon / 2
    mu = deviation * math.sqrt(rounds)
    d1 = norm.cdf(mu / 2 - e1 / mu) - math.exp(e1) * norm.cdf(-mu / 2 - e1 / mu)
    used = d1 * (1 + math.exp(e1 + epsilon))
    assert used <= DELTA_SHARE * delta * (1 + 1e-4)
    assert used >= DELTA_SHARE * delta * (1 - 1e-3)
    assert added.delta_share == pytest.approx(math.expm1(e1) + DELTA_SHARE)


def test_a_shifted_gaussian_mechanism_is_within_the_bound():
    """A client moves the mean by 1, and the run by m more, in the worst direction."""
    sigma = 1.0
    deviation = 0.02
    delta = 1e-3
    outputs = np.linspace(-15, 15, 600_001)
    step = outputs[1] - outputs[0]

    def excess(epsilon, mean):
        density = norm.pdf(outputs, mean, sigma)
        neighbours = norm.pdf(outputs, 0, sigma)
        differences = np.maximum(density - math.exp(epsilon) * neighbours, 0)
        return float(differences.sum() * step)

    honest = brentq(lambda epsilon: excess(epsilon, 1.0) - delta, 0, 20)
    added = carried(deviation, 1, honest, delta)
    both_shifted = 1.0 + 2 * deviation * sigma
    spent = excess(honest + added.epsilon, both_shifted)
    assert delta < excess(honest, both_shifted)
    assert spent <= delta * (1 + added.delta_share)


def test_no_deviation_carries_nothing_and_more_carries_more():
    epsilons = [carried(m, 20, 1.0, 1e-3).epsilon for m in (0.0, 1e-5, 1e-4, 1e-3, 0.1)]
    assert epsilons[0] == 0.0
    assert epsilons == sorted(epsilons)
    assert epsilons[1] < 1e-3
