"""Separation: how often a client counts and the tests of its evidence."""

import math
from itertools import combinations

import numpy as np
from numpy.random import default_rng
from scipy.stats import norm

from privplan.accounting.accountant import accountant
from privplan.accounting.composition import composition
from privplan.accounting.release import SamplingLaw

NAME = "min_separation:4"
LAW = SamplingLaw(NAME).law


def test_the_privacy_is_that_of_one_gaussian():
    """Ten rounds of 37 are 4 apart: one Gaussian with sqrt(10) times the shift."""
    history = composition(8.0, None, 37, sampling=NAME, delta=1e-5).history
    bounds = accountant("pld").epsilon(history, 1e-5, "add_remove")
    shift = math.sqrt(10) / 8
    for epsilon, sign in ((bounds.lower, 1), (bounds.upper, -1)):
        a = shift / 2 - epsilon / shift
        b = -shift / 2 - epsilon / shift
        delta = norm.cdf(a) - math.exp(epsilon) * norm.cdf(b)
        assert sign * (delta - 1e-5) >= -1e-14
    assert bounds.upper / bounds.lower < 1 + 1e-4


def test_the_most_of_a_client_is_that_of_every_choice():
    draws = default_rng(2).integers(1, 15, (40, 12))
    for attended in draws.tolist():
        max_count = 0
        for size in range(1, 5):
            for rounds_apart in combinations(sorted(set(attended)), size):
                if min([4, *np.diff(rounds_apart)]) > 3:
                    count = sum(map(attended.count, rounds_apart))
                    max_count = max(max_count, count)
        assert LAW.most_of_client(attended) == max_count
    for rounds, max_rounds in ((1, 1), (4, 1), (5, 2), (37, 10)):
        assert (
            LAW.rounds_of_client(rounds)
            == LAW.most_of_client(range(1, rounds + 1))
            == max_rounds
        )


def test_evidence():
    drawn = {t: LAW.draw(default_rng(1), 50, 1.0, t).tolist() for t in range(1, 10)}
    assert not list(LAW.attendance_faults(drawn, 50))
    assert not list(
        LAW.cohort_faults([len(cohort) for cohort in drawn.values()], 50, 1.0, 1e-6)
    )
    early = {**drawn, 8: [*drawn[8], drawn[5][0]]}
    assert f"client {drawn[5][0]} is in the cohorts of rounds 5 and 8" in next(
        LAW.attendance_faults(early, 50)
    )
    assert list(LAW.cohort_faults([20, 20, 0, 0, 20, 31], 50, 1.0, 1e-6)) == [
        "rounds 3 to 6: 51 participations of 50 clients"
    ]
