"""Lower bounds on the error: sharp where the bias of weights dwarfs it, and below every plan."""

import numpy as np
from numpy.typing import NDArray

from privplan.planning.choices import optimised, task_of
from privplan.planning.error import mean_noise_multiplier
from privplan.planning.problem import problem_of
from privplan.planning.search import (
    Task,
    _prepared,
    error_of,
    lower_bound,
    relative_gap,
    weights_of,
)
from tests.planning.problems import make_spec, members

Floats = NDArray[np.float64]


def unlike_groups() -> Task:
    """Two groups whose weights must be nearly their shares: h^2 is 1,000 times the error."""
    groups = [members("strict", 900, 2.0), members("loose", 3000, 9.0)]
    planning = {"accountant": "pld", "ratios": "balanced", "heterogeneity": 3.0}
    model = {"name": "mlp-digits", "parameters": 3}
    spec = make_spec(groups=groups, cohort=800, rounds=40, model=model, planning=planning)
    return task_of(spec, problem_of(spec))


def test_the_gap_is_a_small_share_where_groups_must_count_by_their_size() -> None:
    task, curves, _ = _prepared(unlike_groups())
    clients = task.clients

    def noise(cohorts: Floats) -> Floats:
        return curves.at(cohorts / clients)[0]

    grid = [np.array([r, 800 - r]) for r in np.linspace(1, 780, 600)]
    errors = np.array([error_of(task, cohorts, noise(cohorts)) for cohorts in grid])

    def gap(cohorts: Floats) -> float:
        return relative_gap(task, curves, cohorts, 1e-4)[0]

    best = grid[int(errors.argmin())]
    assert 0 <= gap(best) < 0.1
    for worse in (20, 500):
        assert gap(grid[worse]) >= 1 - errors.min() / errors[worse] - 1e-6
    weights = weights_of(task, best, noise(best))
    nu = mean_noise_multiplier(weights, best, noise(best), task.release)
    tangent = 2 * (float(errors.min()) + task.coefficients.bias) / nu
    for_h, _ = lower_bound(task, curves, tangent, np.ones(2))
    assert for_h < 0  # says less than that errors are not negative


def test_a_plan_of_everybody_has_a_gap_of_at_most_one() -> None:
    planning = {"accountant": "pld", "ratios": "balanced", "heterogeneity": 50.0}
    spec = make_spec(sampling="full", cohort=500, planning=planning)
    status = optimised(spec, problem_of(spec)).status
    assert float(status.split("within ")[1].split(" ")[0]) < 0.1
