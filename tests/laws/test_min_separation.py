"""Separation: how often a client counts and the tests of its evidence."""

import math
from itertools import combinations

import numpy as np
from scipy.stats import norm

from privplan.accounting.accountant import accountant
from privplan.accounting.composition import composition
from privplan.accounting.release import SamplingLaw

NAME = "min_separation:4"
LAW = SamplingLaw(NAME).law


def test_the_privacy_is_that_of_one_gaussian():
    """Ten rounds of 37 that are 4 apart: one normal mechanism with sqrt(10) times the shift."""
    history = composition(8.0, None, 37, sampling=NAME, delta=1e-5).history
    found, shift = (
        accountant("pld").epsilon(history, 1e-5, "add_remove"),
        math.sqrt(10) / 8,
    )
    for epsilon, sign in ((found.lower, 1), (found.upper, -1)):
        a, b = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
        delta = norm.cdf(a) - math.exp(epsilon) * norm.cdf(b)
        assert sign * (delta - 1e-5) >= -1e-14
    assert found.upper / found.lower < 1 + 1e-4


def test_the_most_of_a_client_is_that_of_every_choice():
    draws = np.random.default_rng(2).integers(1, 15, (40, 12))
    for done in draws.tolist():
        own = sorted(set(done))
        chosen = [
            c
            for n in range(1, 5)
            for c in combinations(own, n)
            if min([4, *np.diff(c)]) > 3
        ]
        assert LAW.most_of_client(done) == max(sum(map(done.count, c)) for c in chosen)
    for rounds, most in ((1, 1), (4, 1), (5, 2), (37, 10)):
        assert (
            LAW.rounds_of_client(rounds)
            == LAW.most_of_client(range(1, rounds + 1))
            == most
        )


def test_evidence():
    drawn = {
        t: LAW.draw(np.random.default_rng(1), 50, 1.0, t).tolist() for t in range(1, 10)
    }
    assert not list(LAW.attendance_faults(drawn, 50))
    assert not list(
        LAW.cohort_faults([len(one) for one in drawn.values()], 50, 1.0, 1e-6)
    )
    early = {**drawn, 8: [*drawn[8], drawn[5][0]]}
    assert f"client {drawn[5][0]} is in the cohorts of rounds 5 and 8" in next(
        LAW.attendance_faults(early, 50)
    )
    assert list(LAW.cohort_faults([20, 20, 0, 0, 20, 31], 50, 1.0, 1e-6)) == [
        "rounds 3 to 6: 51 participations of 50 clients"
    ]
