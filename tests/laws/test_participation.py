"""Tests of who took part, against exact values and seeded simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privplan.laws.participation import (
    dispersion_p_value,
    participation_law,
    spread_p_value,
    total_p_value,
)
from privplan.verification.checks.check import FALSE_ALARM


def test_total_matches_scipy_binomtest_tails() -> None:
    counts, clients, ratio = [30, 25, 22, 28], 400, 0.05
    total, trials = sum(counts), clients * len(counts)
    tails = stats.binom.cdf(total, trials, ratio), stats.binom.sf(total - 1, trials, ratio)
    assert total_p_value(counts, clients, ratio) == pytest.approx(2 * min(tails))


def test_total_sees_doubled_participation() -> None:
    counts = np.random.default_rng(3).binomial(2000, 0.04, 50)
    assert total_p_value(counts.tolist(), 2000, 0.02) < FALSE_ALARM


def test_full_participation_leaves_no_room() -> None:
    assert total_p_value([10, 10], 10, 1.0) == 1.0
    assert total_p_value([10, 9], 10, 1.0) == 0.0


def test_a_fixed_size_cohort_booked_as_poisson_is_seen() -> None:
    assert dispersion_p_value([40] * 50, 2000, 0.02) < FALSE_ALARM


def test_dispersion_is_a_bound_on_honest_false_alarms() -> None:
    rng = np.random.default_rng(4)
    for clients, ratio in [(2000, 0.02), (10, 0.1), (100, 0.9)]:
        runs = rng.binomial(clients, ratio, (400, 30))
        values = np.array([dispersion_p_value(run.tolist(), clients, ratio) for run in runs])
        for level in (0.3, 0.1, 0.03):
            assert (values < level).mean() <= level + 3 * np.sqrt(level / 400)


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.integers(0, 60), min_size=1, max_size=60), ratio=st.floats(0.001, 0.999))
def test_p_values_are_chances(counts: list[int], ratio: float) -> None:
    for value in (total_p_value(counts, 60, ratio), dispersion_p_value(counts, 60, ratio)):
        assert 0 <= value <= 1


def test_participation_law_is_the_convolution_of_binomials() -> None:
    np.testing.assert_allclose(
        participation_law({0.2: 12}), stats.binom.pmf(np.arange(13), 12, 0.2), rtol=1e-9
    )
    chances = [0.1] * 3 + [0.4] * 2 + [1.0]
    by_hand = np.zeros(7)
    for taken in range(2**6):
        bits = [taken >> place & 1 for place in range(6)]
        by_hand[sum(bits)] += np.prod(
            [p if b else 1 - p for p, b in zip(chances, bits, strict=True)]
        )
    found = participation_law({0.1: 3, 0.4: 2, 1.0: 1})
    np.testing.assert_allclose(found, by_hand, atol=1e-15)


def test_preferred_clients_spread_the_participations() -> None:
    rng, law = np.random.default_rng(7), participation_law({0.1: 40})
    sizes, log_law = np.arange(41), np.log(law)
    even = rng.binomial(40, 0.1, 500)
    mixed = rng.binomial(40, np.repeat([0.05, 0.15], 250))
    assert spread_p_value(even.tolist(), sizes, log_law) > 1e-3
    assert spread_p_value(mixed.tolist(), sizes, log_law) < FALSE_ALARM
    assert spread_p_value(even.tolist(), sizes, log_law) == pytest.approx(
        dispersion_p_value(even.tolist(), 40, 0.1)
    )
