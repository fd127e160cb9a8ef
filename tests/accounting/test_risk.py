"""Budgets stated as risks: against closed forms of the Gaussian mechanism, and riskcal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from privplan.accounting.gdp import log_delta_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.tradeoff import (
    Point,
    advantage_point,
    budget_of,
    delta_for,
    implied_risk,
    limit_of,
    profile_of,
    tightest_budget,
    tradeoff,
)

POINTS = [
    Point(0.01, 0.05),
    Point(0.001, 0.05),
    Point(0.4, 0.6),
    Point(0.9, 0.97),
    advantage_point(0.1),
    advantage_point(0.6),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_budget_implies_its_risk(point: Point) -> None:
    epsilon, delta = budget_of(point)
    assert 0 < delta < 1
    assert implied_risk(point, epsilon, delta) == pytest.approx(limit_of(point), rel=1e-12)
    assert implied_risk(point, epsilon, delta * 1.01) > limit_of(point)


@pytest.mark.parametrize("point", POINTS)
def test_a_gaussian_through_the_point_keeps_the_budget(point: Point) -> None:
    """Of the Gaussian with exactly this risk, less than 0.2% of the risk is lost."""
    rise = ndtri(point.true_positives) - ndtri(point.false_positives)
    epsilon, delta = budget_of(point)
    assert math.exp(log_delta_of(rise, epsilon)) >= delta * (1 - 1e-9)
    assert math.exp(log_delta_of(rise * 0.995, epsilon)) < delta


@pytest.mark.parametrize(
    ("noise", "ratio", "advantage", "rates"),
    [
        # riskcal 1.5.1 on dp-accounting 0.6.0 (discretisation 1e-4), Poisson, 50 rounds
        (0.7357485071, 0.01748, 0.097531544, (0.004209389, 0.025747885, 0.163271356)),
        (0.4202912502, 0.018825, 0.267660351, (0.050316468, 0.132754737, 0.345216319)),
        (1.5, 0.02, 0.041591402, (0.001516516, 0.013666032, 0.121086071)),
    ],
)
def test_risks_are_those_of_riskcal(
    noise: float, ratio: float, advantage: float, rates: tuple[float, ...]
) -> None:
    history = History.repeated(Release(noise, ratio, SamplingLaw.POISSON), 50)
    found = tradeoff(profile_of(history, Relation.ADD_REMOVE), 1e-5, 3.0)
    assert found.advantage == pytest.approx(advantage, rel=2e-4)
    assert found.true_positives == pytest.approx(rates, rel=2e-3)


def test_the_tangent_of_a_gaussian_is_found_on_its_curve() -> None:
    point, mu = Point(0.01, 0.05), float(ndtri(0.05) - ndtri(0.01))

    def profile(epsilons: np.ndarray) -> np.ndarray:
        return np.array([math.exp(log_delta_of(mu, float(e))) for e in epsilons])

    risk, (epsilon, delta) = tightest_budget(point, profile)
    assert risk == pytest.approx(0.05, rel=1e-4)
    assert epsilon == pytest.approx(budget_of(point)[0], rel=0.02)
    assert delta == pytest.approx(delta_for(point, epsilon))
