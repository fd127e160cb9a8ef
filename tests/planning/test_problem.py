"""Limits of the groups, cohorts that a law can draw, weights, and kept fractions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privplan.accounting.release import SamplingLaw
from privplan.errors import InfeasibleError, InputError
from privplan.planning.error import WEIGHTS, weights
from privplan.planning.noise import least_noise
from privplan.planning.problem import drawable, uniform_cohorts, whole_cohorts
from privplan.planning.published import best_kept
from privplan.planning.solver import solve
from privplan.planning.theorem_3 import step_constants
from tests.planning.problems import make_problem, make_spec, members


def groups(**first):
    return [members("strict", 200, 1.0, **first), members("loose", 300, 4.0)]


@pytest.mark.parametrize("release", ["joint", "per_group"])
def test_limits_hold(release):
    limits = {
        "min_sampling_ratio": 0.08,
        "max_sampling_ratio": 0.12,
        "min_weight": 0.35,
    }
    planning = {"accountant": "rdp", "ratios": "noise", "release": release}
    plan = solve(make_spec(groups=groups(**limits), planning=planning))
    assert 0.08 * (1 - 1e-9) <= plan.groups[0].sampling_ratio <= 0.12 * (1 + 1e-9)
    assert plan.groups[0].weight >= 0.35 - 1e-6


def floors_of(strict_floor, middle_floor, **planning):
    groups: list[dict[str, Any]] = [
        members("strict", 200, 1.0, min_weight=strict_floor),
        members("middle", 200, 2.0, min_weight=middle_floor),
        members("loose", 300, 4.0),
    ]
    return make_spec(groups=groups, planning={"ratios": "balanced", **planning})


@pytest.mark.parametrize("ratios", ["balanced", "noise"])
def test_least_weights_that_leave_nothing_to_a_group_of_one_sum(ratios):
    with pytest.raises(
        InfeasibleError, match=r"groups.strict.min_weight: .*middle.* found 1 "
    ):
        solve(floors_of(1.0, None, ratios=ratios))
    with pytest.raises(
        InfeasibleError, match=r"groups.\*.min_weight: .*loose.* found 1 "
    ):
        solve(floors_of(0.4, 0.6, ratios=ratios))


def test_a_group_without_weight_has_a_sum_of_its_own():
    plan = solve(floors_of(1.0, None, release="per_group"))
    assert [group.weight for group in plan.groups] == pytest.approx([1, 0, 0], abs=1e-9)


def test_one_sum_gives_each_group_the_noise_that_it_really_faces():
    """A floor that lifts a weight gives the other groups more noise than they need."""
    planning = {"accountant": "rdp", "ratios": "noise"}
    plan = solve(make_spec(groups=groups(min_weight=0.6), planning=planning))
    stds = [g.noise_multiplier * g.scale for g in plan.groups]
    assert stds[0] == pytest.approx(stds[1], rel=1e-12)
    shares = [g.expected_cohort * g.scale for g in plan.groups]
    assert plan.groups[0].weight == pytest.approx(shares[0] / sum(shares), rel=1e-9)
    assert plan.mean_noise_std == pytest.approx(stds[0] / sum(shares), rel=1e-9)


def test_dropouts_are_provisioned_for():
    plain = solve(make_spec(planning={"accountant": "rdp", "ratios": "noise"}))
    planning = {"accountant": "rdp", "ratios": "noise", "dropout_tolerance": 0.2}
    tolerant = solve(make_spec(planning=planning))
    assert tolerant.mean_noise_std == pytest.approx(
        plain.mean_noise_std / 0.8**0.5, rel=1e-6
    )


def test_a_budget_that_no_noise_meets_names_the_nearest_epsilon():
    """The nearest epsilon can be met, a little less cannot."""
    problem = make_problem(epsilons=(1e-6, 2.0, 4.0), deltas=(1e-9,) * 3)
    with pytest.raises(InfeasibleError) as caught:
        least_noise(problem, 0, 0.3, "rdp")
    nearest_epsilon = float(str(caught.value).rsplit(" ", 1)[1])
    feasible = make_problem(
        epsilons=(nearest_epsilon * 1.01, 2.0, 4.0), deltas=(1e-9,) * 3
    )
    assert least_noise(feasible, 0, 0.3, "rdp") <= 1e4
    infeasible = make_problem(
        epsilons=(nearest_epsilon * 0.99, 2.0, 4.0), deltas=(1e-9,) * 3
    )
    with pytest.raises(InfeasibleError, match="nearest feasible epsilon"):
        least_noise(infeasible, 0, 0.3, "rdp")


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), min_size=1, max_size=6),
    st.data(),
)
def test_whole_cohorts_sum_and_stay_in_range(pairs, data):
    clients = np.array([size for _, size in pairs], dtype=float)
    cohorts = np.array([ratio * size for ratio, size in pairs])
    total = data.draw(st.integers(len(pairs), int(clients.sum())))
    rounded = whole_cohorts(cohorts, clients, total)
    assert rounded.sum() == total
    assert np.all(
        (rounded >= 1) & (rounded <= clients) & (rounded == np.round(rounded))
    )


def test_too_few_clients_for_a_whole_cohort_names_the_nearest():
    with pytest.raises(InfeasibleError, match="the nearest that can is 3"):
        whole_cohorts(np.array([0.5, 0.5, 1.0]), np.array([9.0] * 3), 2)


def test_laws():
    cohorts = np.array([10.4, 20.3, 29.3])
    assert drawable(make_problem(), cohorts).tolist() == cohorts.tolist()
    assert drawable(
        make_problem(sampling=SamplingLaw.FIXED_SIZE), cohorts
    ).tolist() == [11, 20, 29]
    everybody = uniform_cohorts(make_problem(sampling=SamplingLaw.FULL))
    assert everybody.tolist() == [200, 200, 200]


@pytest.mark.parametrize("rule", WEIGHTS)
def test_weights_sum_to_one(rule):
    shares = weights(rule, [3.0, 5.0, 9.0], [1.0, 2.0, 0.5], [4, 5, 6])
    assert shares.sum() == pytest.approx(1)
    assert np.all(shares > 0)


def test_weights_by_hand():
    assert weights("participation", [1.0, 2.0], [9.0, 9.0], [4, 5]).tolist() == [
        0.2,
        0.8,
    ]
    assert weights("uniform", [1.0, 2.0], [9.0, 1.0], [4, 5]).tolist() == [0.5, 0.5]
    assert weights("inverse_variance", [1.0, 2.0], [1.0, 1.0], [4, 5]).tolist() == [
        0.2,
        0.8,
    ]
    assert weights("population", [1.0, 2.0], [1.0, 1.0], [4, 6]).tolist() == [0.4, 0.6]
    with pytest.raises(InputError, match=r"planning\.weights: must be one of"):
        weights("mean", [1.0], [1.0], [4])


def test_kept_fraction_by_hand():
    """Remark 3 at eta 0.1, tau 5: 1 - 2 w sigma^2 / (eta tau mu4 r^2)."""
    constants = step_constants(0.1, 5)
    assert constants.mu4 == pytest.approx(16.12)
    assert constants.mu5 == pytest.approx(8)
    kept_fractions = best_kept(
        np.array([0.5]), np.array([2.0]), np.array([1.0]), constants, 1000
    )
    assert kept_fractions[0] == pytest.approx(1 - 2 * 0.5 * 4 / (0.5 * 16.12))
    drowned_fractions = best_kept(
        np.array([1.0]), np.array([50.0]), np.array([1.0]), constants, 1000
    )
    assert drowned_fractions[0] == 1 / 1000
