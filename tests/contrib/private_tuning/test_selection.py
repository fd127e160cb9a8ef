"""Epsilon of the best of several runs, against dp-accounting and closed forms."""

from __future__ import annotations

import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from privplan.accounting.rdp import ORDERS
from privplan.accounting.rdp import RdpAccountant as OwnRdp
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.contrib.private_tuning.selection import (
    epsilon_of_selection,
    negative_binomial_gamma,
    rdp_of_selection,
)

WHOLE = [float(order) for order in ORDERS if order == round(order) and order <= 256]


@pytest.mark.parametrize(
    ("mean", "shape"), [(20, math.inf), (1.5, math.inf), (20, 1.0), (5, 0.5), (100, 2.0)]
)
@pytest.mark.parametrize(("q", "sigma", "rounds"), [(0.02, 1.5, 50), (1.0, 20.0, 30)])
def test_it_is_dp_accountings_repeat_and_select(mean, shape, q, sigma, rounds):
    run: dp.DpEvent = dp.GaussianDpEvent(sigma)
    if q < 1:
        run = dp.PoissonSampledDpEvent(q, run)
    event = dp_event.RepeatAndSelectDpEvent(dp.SelfComposedDpEvent(run, rounds), mean, shape)
    other = RdpAccountant(WHOLE).compose(event).get_epsilon(1e-5)
    history = History.repeated(Release(sigma, q, SamplingLaw.POISSON), rounds)
    own = epsilon_of_selection(history, 1e-5, Relation.ADD_REMOVE, mean=mean, shape=shape)
    assert own <= other * (1 + 1e-6)  # more orders than theirs
    assert own == pytest.approx(other, rel=0.02)


def test_geometric_by_hand_for_a_gaussian():
    """Theorem 2 with eta 1: epsilon(l) = l / 2 s^2, gamma = 1 / E[K]."""
    sigma, mean = 4.0, 10.0
    found = rdp_of_selection(ORDERS / (2 * sigma**2), mean, 1.0)
    extra = 2 * min((1 - 1 / a) * a / (2 * sigma**2) + math.log(mean) / a for a in ORDERS)
    expected = ORDERS / (2 * sigma**2) + extra + math.log(mean) / (ORDERS - 1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("mean", [1.01, 5.0, 1e4])
def test_gamma_gives_the_mean(shape, mean):
    gamma = negative_binomial_gamma(mean, shape)
    found = shape * (1 - gamma) / (gamma * (1 - gamma**shape))
    assert found == pytest.approx(mean, rel=1e-6)


def test_one_run_costs_its_own_and_more_runs_cost_more():
    history = History.repeated(Release(1.5, 0.02, SamplingLaw.POISSON), 50)
    one = OwnRdp().epsilon(history, 1e-5, Relation.ADD_REMOVE).upper
    costs = [
        epsilon_of_selection(history, 1e-5, Relation.ADD_REMOVE, mean=mean, shape=math.inf)
        for mean in (2, 20, 200)
    ]
    assert one < costs[0] < costs[1] < costs[2]
