"""Trade-off curves and budgets stated as risks: closed forms, mechanisms, riskcal."""

import math
from itertools import starmap

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from privplan.accounting import tradeoff as curves
from privplan.accounting.accountant import accountant
from privplan.accounting.gdp import epsilon_of, log_delta_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw


def gaussian(mu):
    return lambda epsilons: np.exp([log_delta_of(mu, float(e)) for e in epsilons])


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0])
def test_gaussian_mechanism(mu):
    # Dong, Roth and Su 2022: the best attack on mu-GDP has rate Phi(Phi^-1(a) + mu).
    curve = curves.tradeoff(gaussian(mu), 1e-5, epsilon_of(mu, 1e-5))
    assert curve.advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1, rel=1e-12)
    assert curve.mu == pytest.approx(mu, rel=1e-6)
    exact = ndtr(ndtri(np.array(curves.LEVELS)) + mu)
    assert np.all(np.array(curve.true_positives) >= exact - 1e-12)
    assert_allclose(curve.true_positives, exact, rtol=2e-3)


def test_curve_is_a_trade_off():
    curve = curves.tradeoff(gaussian(1.0), 1e-5, epsilon_of(1.0, 1e-5))
    false_positives = np.array(curve.false_positive_axis)
    true_positives = np.array(curve.true_positive_axis)
    assert false_positives[0] == 0
    assert false_positives[-1] == true_positives[-1] == 1
    assert np.all(np.diff(false_positives) > 0)
    assert np.all(np.diff(true_positives) >= -1e-12)
    assert np.all(true_positives >= false_positives)
    slopes = np.diff(true_positives) / np.diff(false_positives)
    assert np.all(np.diff(slopes) <= 1e-9 * slopes[0])
    advantage = np.max(true_positives - false_positives)
    assert advantage == pytest.approx(curve.advantage, rel=1e-3)


def test_randomised_response_by_hand():
    # Pure epsilon = log 3: the true-positive rate is at most 3 a, and 1 - (1 - a) / 3.
    epsilons = np.array([math.log(3)])
    rates = curves.true_positive(epsilons, np.array([0.0]), (0.0, 0.1, 0.25, 0.7))
    assert_allclose(rates, [0.0, 0.3, 0.75, 0.9], rtol=1e-12)


def test_nothing_released_and_everything_released():
    silent = curves.tradeoff(lambda epsilons: np.zeros_like(epsilons), 1e-5, 0.0)
    assert silent.advantage == silent.mu == 0
    assert_allclose(silent.true_positives, curves.LEVELS)
    naked = curves.tradeoff(lambda epsilons: np.ones_like(epsilons), 1e-5, math.inf)
    assert naked.advantage == 1
    assert math.isinf(naked.mu)
    assert naked.true_positives == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("sigma", "q", "rounds"), [(1.5, 0.02, 50), (0.8, 0.1, 300), (3.0, 0.5, 10)]
)
def test_profile_agrees_with_dp_accounting(sigma, q, rounds):
    from dp_accounting.pld import privacy_loss_distribution

    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, value_discretization_interval=1e-3, sampling_prob=q
    ).self_compose(rounds)
    ours = curves.profile_of(History.repeated(Release(sigma, q), rounds), "add_remove")
    epsilons = np.array([0.0, 0.05, 0.3, 1.0, 3.0])
    expected = theirs.get_delta_for_epsilon(epsilons)
    assert_allclose(ours(epsilons), expected, rtol=2e-2, atol=1e-9)


def test_profile_is_consistent_with_epsilon():
    for law in ("poisson", "fixed_size"):
        history = History.repeated(Release(1.5, 0.02, law), 50)
        for relation in Relation:
            bounds = accountant("pld").epsilon(history, 1e-5, relation)
            (delta,) = curves.profile_of(history, relation)(np.array([bounds.upper]))
            assert delta == pytest.approx(1e-5, rel=2e-2)


def test_profiles_without_sampling_or_without_noise():
    full = History.repeated(Release(2.0, 1.0, "full"), 1)
    (delta,) = curves.profile_of(full, "add_remove")(np.array([1.0]))
    assert delta == pytest.approx(math.exp(log_delta_of(0.5, 1.0)), rel=1e-6)
    naked = History.repeated(Release(0.0, 0.1), 1)
    assert curves.profile_of(naked, "add_remove")(np.array([1.0])) == [1.0]
    assert curves.profile_of(History(), "add_remove")(np.array([0.0])) == [0.0]


@pytest.mark.parametrize("sigma", [0.05, 0.06, 0.08])
@pytest.mark.parametrize("rounds", [1, 3])
def test_little_noise_leaves_the_chance_of_taking_part(sigma, rounds):
    # By hand: with hardly any noise an attack is right where the client took part.
    history = History.repeated(Release(sigma, 0.1), rounds)
    epsilon = accountant("pld").epsilon(history, 1e-5, "add_remove").upper
    curve = curves.tradeoff(curves.profile_of(history, "add_remove"), 1e-5, epsilon)
    ever = 1 - 0.9**rounds
    assert ever * (1 - 1e-9) <= curve.advantage <= ever * (1 + 1e-9)
    for level, rate in zip(curves.LEVELS, curve.true_positives, strict=True):
        assert level + ever * (1 - level) - 1e-9 <= rate <= level + ever + 0.001


def test_an_advantage_is_at_most_what_the_budget_implies():
    # Kairouz, Oh and Viswanath 2015: (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), which
    # is 0.2 at (0, 0.2).
    of_delta = curves.tradeoff(np.ones_like, 0.2, 0.0)
    assert of_delta.advantage == pytest.approx(0.2, rel=1e-12)
    assert math.isinf(of_delta.mu)
    of_both = curves.tradeoff(np.ones_like, 0.1, math.log(3))
    assert of_both.advantage == pytest.approx((3 - 1 + 0.2) / 4, rel=1e-12)


LEVELS_AND_RATES = ((0.01, 0.05), (0.001, 0.05), (0.4, 0.6), (0.9, 0.97))
POINTS = [
    *starmap(curves.Point, LEVELS_AND_RATES),
    *map(curves.advantage_point, (0.1, 0.6)),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_budget_implies_its_risk(point):
    epsilon, delta = curves.budget_of(point)
    assert 0 < delta < 1
    assert curves.implied_risk(point, epsilon, delta) == pytest.approx(
        curves.limit_of(point), rel=1e-12
    )
    assert curves.implied_risk(point, epsilon, delta * 1.01) > curves.limit_of(point)


@pytest.mark.parametrize("point", POINTS)
def test_a_gaussian_through_the_point_keeps_the_budget(point):
    """Of the Gaussian with exactly this risk, less than 0.2% of the risk is lost."""
    rise = ndtri(point.true_positives) - ndtri(point.false_positives)
    epsilon, delta = curves.budget_of(point)
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
def test_risks_are_those_of_riskcal(noise, ratio, advantage, rates):
    history = History.repeated(Release(noise, ratio, SamplingLaw.POISSON), 50)
    curve = curves.tradeoff(curves.profile_of(history, Relation.ADD_REMOVE), 1e-5, 3.0)
    assert curve.advantage == pytest.approx(advantage, rel=2e-4)
    assert curve.true_positives == pytest.approx(rates, rel=2e-3)


def test_the_tangent_of_a_gaussian_is_found_on_its_curve():
    point = curves.Point(0.01, 0.05)
    mu = float(ndtri(0.05) - ndtri(0.01))

    def profile(epsilons):
        return np.array([math.exp(log_delta_of(mu, float(e))) for e in epsilons])

    risk, (epsilon, delta) = curves.tightest_budget(point, profile)
    assert risk == pytest.approx(0.05, rel=1e-4)
    assert epsilon == pytest.approx(curves.budget_of(point)[0], rel=0.02)
    assert delta == pytest.approx(curves.delta_for(point, epsilon))
