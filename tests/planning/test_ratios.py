"""Cohorts that a law can draw, weights, and kept fractions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privplan.accounting.release import SamplingLaw
from privplan.errors import InfeasibleError, InputError
from privplan.planning.bounds import step_constants
from privplan.planning.error import WEIGHTS, weights
from privplan.planning.problem import drawable, uniform_cohorts, whole_cohorts
from privplan.planning.published import best_kept, sparsification_error
from tests.planning.problems import make_problem


def test_uniform_cohorts_have_one_ratio() -> None:
    problem = make_problem(clients=(100, 200, 300), cohort=60.0)
    assert uniform_cohorts(problem).tolist() == pytest.approx([10, 20, 30])


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), min_size=1, max_size=6), st.data())
def test_whole_cohorts_sum_and_stay_in_range(
    pairs: list[tuple[float, int]], data: st.DataObject
) -> None:
    clients = np.array([size for _, size in pairs], dtype=float)
    cohorts = np.array([part * size for part, size in pairs])
    total = data.draw(st.integers(len(pairs), int(clients.sum())))
    whole = whole_cohorts(cohorts, clients, total)
    assert whole.sum() == total
    assert np.all((whole >= 1) & (whole <= clients) & (whole == np.round(whole)))


def test_too_few_clients_for_a_whole_cohort_names_the_nearest() -> None:
    with pytest.raises(InfeasibleError, match="the nearest that can is 3"):
        whole_cohorts(np.array([0.5, 0.5, 1.0]), np.array([9.0] * 3), 2)


def test_laws() -> None:
    cohorts = np.array([10.4, 20.3, 29.3])
    poisson = make_problem()
    assert drawable(poisson, cohorts) is not None
    assert drawable(poisson, cohorts).tolist() == cohorts.tolist()
    fixed = make_problem(sampling=SamplingLaw.FIXED_SIZE)
    assert drawable(fixed, cohorts).tolist() == [11, 20, 29]
    full = make_problem(sampling=SamplingLaw.FULL)
    assert drawable(full, cohorts).tolist() == [200, 200, 200]


@pytest.mark.parametrize("rule", WEIGHTS)
def test_weights_sum_to_one(rule: str) -> None:
    found = weights(rule, [3.0, 5.0, 9.0], [1.0, 2.0, 0.5], [4, 5, 6])
    assert found.sum() == pytest.approx(1)
    assert np.all(found > 0)


def test_weights_by_hand() -> None:
    assert weights("participation", [1.0, 2.0], [9.0, 9.0], [4, 5]).tolist() == [0.2, 0.8]
    assert weights("uniform", [1.0, 2.0], [9.0, 1.0], [4, 5]).tolist() == [0.5, 0.5]
    assert weights("inverse_variance", [1.0, 2.0], [1.0, 1.0], [4, 5]).tolist() == [0.2, 0.8]
    assert weights("population", [1.0, 2.0], [1.0, 1.0], [4, 6]).tolist() == [0.4, 0.6]
    with pytest.raises(InputError, match=r"planning\.weights: must be one of"):
        weights("mean", [1.0], [1.0], [4])


def test_inverse_variance_is_the_least_noise_of_separate_releases() -> None:
    cohorts, noise = np.array([3.0, 7.0, 20.0]), np.array([1.5, 1.0, 0.7])
    best = weights("inverse_variance", cohorts, noise, [1, 1, 1])
    generator = np.random.default_rng(0)
    for other in generator.dirichlet(np.ones(3), size=200):
        assert np.sum((best * noise / cohorts) ** 2) <= np.sum((other * noise / cohorts) ** 2)


def test_kept_fraction_by_hand() -> None:
    """Remark 3 at eta 0.1, tau 5: 1 - 2 w sigma^2 / (eta tau mu4 r^2)."""
    constants = step_constants(0.1, 5)
    assert constants.mu4 == pytest.approx(16.12)
    assert constants.mu5 == pytest.approx(8)
    kept = best_kept(np.array([0.5]), np.array([2.0]), np.array([1.0]), constants, 1000)
    assert kept[0] == pytest.approx(1 - 2 * 0.5 * 4 / (0.5 * 16.12))
    drowned = best_kept(np.array([1.0]), np.array([50.0]), np.array([1.0]), constants, 1000)
    assert drowned[0] == 1 / 1000
    assert sparsification_error(np.array([0.7]))[0] == pytest.approx(0.09)
