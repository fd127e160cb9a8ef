"""Histories of very many rounds, of many kinds of rounds, and of rare participation."""

import mpmath as mp
import numpy as np
import pytest

import privplan
from privplan.accounting.pld import convolution
from privplan.proven import finding_on
from tests.accounting.pld import quadrature


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "ratio", "noise", "target_delta"),
    [
        (10**7, 1e-3, 1.0, 1e-6),
        (10**6, 1e-4, 5.0, 1e-9),
        (10**5, 3e-3, 0.8, 1e-8),
        (1_000, 0.05, 1.2, 1e-7),
    ],
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_very_many_rounds_are_those_of_a_quadrature(
    rounds, ratio, noise, target_delta, relation
):
    bounds = privplan.compose(
        [(privplan.Release(noise, ratio), rounds)], relation
    ).epsilon(target_delta)
    assert bounds.upper <= bounds.lower * (1 + 6e-4)

    # The direction in which the client is removed spends more.
    swap = relation == "replace_one"
    at_upper = quadrature.delta(noise, ratio, rounds, bounds.upper, swap=swap)
    at_lower = quadrature.delta(noise, ratio, rounds, bounds.lower, swap=swap)
    assert at_upper <= target_delta * (1 + 1e-6)
    assert at_lower >= target_delta * (1 - 1e-6)


def test_many_kinds_of_rounds_cost_between_the_cheapest_and_the_dearest():
    """Delta of mixed rounds, by bounds that are close to each other."""
    kinds = [privplan.Release(1 + 0.3 * step, 0.01 * (step + 1)) for step in range(12)]
    full_round = privplan.Release(9.0, 1.0, "full")
    history = privplan.History([(kind, 20) for kind in kinds] + [(full_round, 4)])
    curve = privplan.compose(history)
    bounds = curve.epsilon(1e-7)
    assert bounds.lower <= bounds.upper <= bounds.lower * (1 + 2e-4)
    spent = curve.delta(bounds.upper)
    assert spent.lower <= 1e-7
    assert spent.upper <= spent.lower * (1 + 1.2e-3)


RARE = [
    # noise, ratio, rounds, delta, relation; expected participations
    (0.62, 2.5e-5, 30_000, 1e-7, "add_remove"),  # 0.75
    (0.74, 1.4e-6, 2226, 1.5e-7, "replace_one"),  # 0.003
    (0.71, 7.0e-6, 11, 5.7e-9, "add_remove"),  # 8e-5
    (0.56, 1.8e-6, 1756, 2.8e-9, "add_remove"),  # 0.003
    (0.73, 6.6e-5, 15_961, 5.1e-6, "add_remove"),  # 1.06
]


@pytest.mark.parametrize(
    ("noise", "ratio", "rounds", "delta", "relation"),
    [
        # Few rounds at a small delta take the longest.
        pytest.param(*case, marks=pytest.mark.slow if case[2] < 100 else ())
        for case in RARE
    ],
)
def test_rare_participation_has_close_bounds(noise, ratio, rounds, delta, relation):
    history = privplan.History.repeated(privplan.Release(noise, ratio), rounds)
    bounds = privplan.compose(history, relation).epsilon(delta)
    assert 0 < bounds.lower <= bounds.upper <= bounds.lower * (1 + 5e-3)


@pytest.mark.parametrize("rounds", [10, 1_000_000])
def test_masses_of_rare_moves_are_those_of_a_multinomial_law(rounds):
    """Two moves of different length, one of them backwards, in forty digits."""
    points = 64
    forward = 3 / rounds / 10
    backward = 1 / rounds / 10
    masses = np.array([1 - forward - backward, forward, backward])
    places = np.array([5, 8, 4])
    circle, error = convolution.convolved([(places, masses, float(rounds))], points)
    assert error < 1e-13

    with mp.workdps(40):
        stays = 1 - mp.mpf(forward) - mp.mpf(backward)
        for ups, downs in ((0, 0), (1, 0), (0, 1), (2, 1)):
            exact = mp.binomial(rounds, ups) * mp.binomial(rounds - ups, downs)
            exact *= mp.mpf(forward) ** ups * mp.mpf(backward) ** downs
            exact *= stays ** (rounds - ups - downs)
            place = (5 * rounds + 3 * ups - downs) % points
            # Further ways to the same place, such as three back and one forward more.
            further = exact * mp.mpf(forward) * mp.mpf(backward) ** 3 * rounds**4
            computed = circle[place]
            rounding = error + rounds * 1e-15 * exact
            assert -rounding <= computed - exact <= rounding + further


def test_a_bound_on_rare_participation_is_proven_in_exact_arithmetic():
    """Eleven rounds at a ratio of 7e-6, by a program that shares no code."""
    pytest.importorskip("flint")
    history = privplan.History.repeated(privplan.Release(0.71, 7e-6), 11)
    bounds = privplan.compose(history, "add_remove").epsilon(5.7e-9)
    relation = privplan.Relation.ADD_REMOVE
    proof = finding_on(history, relation, bounds.upper * 1.001, 5.7e-9)
    assert proof.outcome == "proven"
