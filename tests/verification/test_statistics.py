"""The statistical tests behind a verdict, against exact values and seeded simulation."""

import numpy as np
import pytest
from scipy import stats

from privplan.accounting.families import noise_p_value
from privplan.laws.participation import participation_law
from privplan.verification.checks.check import FALSE_ALARM
from privplan.verification.checks.sampling import oddest_client


def test_noise_p_value_is_the_two_sided_chi_square() -> None:
    statistic, coordinates = 1100.0, 1000
    exact = 2 * min(stats.chi2.cdf(statistic, coordinates), stats.chi2.sf(statistic, coordinates))
    assert noise_p_value(4 * statistic, 2.0, coordinates) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("factor", [0.5, 0.95, 1.05, 2.0])
def test_wrong_noise_is_seen(factor: float) -> None:
    drawn = np.random.default_rng(1).normal(0, 1.5 * factor, 29_000)
    assert noise_p_value(float((drawn**2).sum()), 1.5, drawn.size) < FALSE_ALARM


def test_honest_noise_passes() -> None:
    rng = np.random.default_rng(2)
    values = [noise_p_value(float((rng.normal(size=500) ** 2).sum()), 1.0, 500) for _ in range(500)]
    assert min(values) > 1e-4
    assert 0.4 < np.mean(values) < 0.6  # uniform when honest


def test_no_noise_where_noise_was_recorded_fails() -> None:
    assert noise_p_value(0.0, 1.5, 100) == 0.0
    assert noise_p_value(1.0, 0.0, 100) == 0.0


def test_a_client_who_is_always_there_is_named_with_its_chance() -> None:
    counts = np.random.default_rng(5).binomial(50, 0.02, 2000)
    counts[77] = 50
    client, chance = oddest_client(counts, participation_law({0.02: 50}))
    assert client == 77
    assert chance == pytest.approx(2 * 2000 * 0.02**50)
    assert oddest_client(np.array([51]), participation_law({0.02: 50})) == (0, 0.0)


@pytest.mark.parametrize("fixed", [False, True])
def test_the_oddest_client_s_chance_is_a_bound_on_honest_false_alarms(fixed: bool) -> None:
    """Poisson cohorts, and cohorts of fixed size, whose clients depend on each other."""
    rng, clients, rounds, size = np.random.default_rng(6), 40, 20, 8
    law = participation_law({size / clients: rounds})
    chances = []
    for _ in range(300):
        draws = rng.random((rounds, clients))
        limit = np.sort(draws, axis=1)[:, size - 1 : size] if fixed else size / clients
        chances.append(oddest_client((draws <= limit).sum(0), law)[1])
    for level in (0.5, 0.2, 0.05):
        assert np.mean(np.array(chances) < level) <= level + 3 * np.sqrt(level / 300)
