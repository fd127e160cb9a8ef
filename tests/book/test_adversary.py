"""An adversary that chooses its second run by the first result, against two filters.

One client, two worlds. The first run is a Gaussian release, whose privacy loss the
adversary sees. It prepared two second runs, each of which the naive filter (exact
composition of what was run) accepts at the whole budget: a Gaussian release, and a
release that rarely contains the client but with little noise. After each outcome it
takes the one with the larger remaining delta.
"""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from privplan.accounting.accountant import accountant
from privplan.accounting.gdp import log_delta_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book.accounts import Budgets
from privplan.errors import InfeasibleError

EPSILON = 1.0
DELTA = 1e-3
FIRST = 3.0  # noise multiplier of the first run
RATIO = 0.004  # sampling ratio of the second run that rarely contains the client


def full(noise):
    return History.repeated(Release(noise, 1.0, SamplingLaw.FULL), 1)


def rare(noise):
    return History.repeated(Release(noise, RATIO, SamplingLaw.POISSON), 1)


def delta_of_full(noise, epsilon):
    """Hockey-stick divergence of a Gaussian release at any epsilon, also negative."""
    if epsilon < 0:  # the pair is symmetric
        return (
            1 - math.exp(epsilon) + math.exp(epsilon) * delta_of_full(noise, -epsilon)
        )
    return math.exp(log_delta_of(1 / noise, epsilon))


def delta_of_rare(noise, epsilon):
    """The same of a sampled one, the client in the first world: closed form."""
    inner = 1 + math.expm1(epsilon) / RATIO
    return (
        1 - math.exp(epsilon)
        if inner <= 0
        else RATIO * delta_of_full(noise, math.log(inner))
    )


def realised(second):
    """Delta at EPSILON of the adaptive sequence: the best run after each first loss."""
    mu = 1 / FIRST
    points = np.linspace(mu**2 / 2 - 9 * mu, mu**2 / 2 + 9 * mu, 3001)
    density = norm.pdf(points, mu**2 / 2, mu)
    best = []
    for loss in points:
        deltas = [delta(noise, EPSILON - loss) for delta, noise in second]
        best.append(max(deltas))
    return float(np.trapezoid(density * np.array(best), points))


def least_noise(fits, low, high):
    """The smallest noise multiplier that a filter accepts for a second run, to 1e-4."""
    for _ in range(18):
        middle = math.sqrt(low * high)
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def naive(history):
    spent = accountant("pld").epsilon(full(FIRST) + history, DELTA, Relation.ADD_REMOVE)
    return spent.upper <= EPSILON


def test_the_adversary_breaks_a_naive_filter():
    second = (
        (delta_of_full, least_noise(lambda s: naive(full(s)), 0.5, 50)),
        (delta_of_rare, least_noise(lambda s: naive(rare(s)), 0.05, 50)),
    )
    for alone in second:  # either of them, fixed in advance, keeps the budget
        assert realised((alone,)) <= DELTA * 1.001
    assert realised(second) > 1.1 * DELTA


def test_the_adversary_fails_against_the_book(tmp_path):
    budgets = Budgets(str(tmp_path / "book.sqlite"))
    budgets.open("client", EPSILON, DELTA)
    budgets.commit(budgets.reserve("first", {"client": full(FIRST)}))

    def fits(history):
        try:
            budgets.close(budgets.reserve("second", {"client": history}))
        except InfeasibleError:
            return False
        return True

    second = (
        (delta_of_full, least_noise(lambda s: fits(full(s)), 0.5, 50)),
        (delta_of_rare, least_noise(lambda s: fits(rare(s)), 0.05, 50)),
    )
    assert 0 < realised(second) <= DELTA


def test_the_closed_forms_agree_with_the_accountant():
    bounds = accountant("pld").epsilon(rare(0.5), 1e-3, Relation.ADD_REMOVE)
    expected = brentq(lambda e: delta_of_rare(0.5, e) - 1e-3, 0.0, 5.0)
    assert bounds.lower - 1e-6 <= expected <= bounds.upper + 1e-6
    exact = math.exp(log_delta_of(math.hypot(1 / FIRST, 1 / 4.0), EPSILON))
    assert realised(((delta_of_full, 4.0),)) == pytest.approx(exact, rel=1e-3)
