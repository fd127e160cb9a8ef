"""Plans that protect records: formulas against simulation, budgets, weights, words."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning import records as level
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec, members, spec_data


def record_data(**changes):
    """Two groups of clients with 100 and 240 records, 5 rounds."""
    data = spec_data(unit="record", cohort=None, rounds=5, planning={})
    data["groups"] = [
        members("strict", 3, 1.0, records=100, batch_size=10),
        members("loose", 2, 4.0, records=240, batch_size=50),
    ]
    return {**data, **changes}


def records(**changes):
    return Spec.parse(record_data(**changes))


def dp_sgd(gradient, steps, rate, std, runs, p):
    """Updates of many runs [runs, p] of noisy steps from zero."""
    generator = np.random.default_rng(5)
    theta = np.zeros((runs, p))
    for _ in range(steps):
        theta -= rate * (
            gradient(theta, generator) + std * generator.standard_normal((runs, p))
        )
    return theta


def spread_of(updates):
    return float(updates.var(axis=0, ddof=1).sum())


def test_eq_3_and_7_against_clipped_gradients_that_are_drawn():
    """Gradients of random sign, longer than c, on a loss that is linear in theta."""
    p = 8
    clip = 0.7
    z = 0.9
    batch = 4
    steps = 6
    rate = 0.3
    mean = np.zeros(p)
    mean[0] = clip * 0.4  # the sign is +1 with chance 0.7

    def gradient(theta, random):
        signs = np.where(random.random((len(theta), batch)) < 0.7, 1.0, -1.0)
        drawn = np.zeros_like(theta)
        drawn[:, 0] = clip * signs.mean(axis=1)
        return drawn

    updates = dp_sgd(gradient, steps, rate, clip * z / batch, 200_000, p)
    step_variance = level.clipped_gradient_variance(
        clip, z, batch, p, mean_norm=float(np.linalg.norm(mean))
    )
    assert spread_of(updates) == pytest.approx(
        level.update_variance(steps, rate, step_variance), rel=0.01
    )
    without = level.update_variance(
        steps, rate, level.clipped_gradient_variance(clip, z, batch, p)
    )
    # The term that Eq. 3 drops is seen here.
    assert spread_of(updates) > without * 1.01


def test_eq_7_leaves_out_how_a_quadratic_forgets():
    """Curvature 1: noise shrinks by 1 - eta a step; Eq. 7 is the limit of small eta."""
    p = 5
    steps = 10
    rate = 0.1
    std = 0.5
    updates = dp_sgd(lambda theta, random: theta - 1.0, steps, rate, std, 200_000, p)
    step_variance = p * std**2
    exact = rate**2 * step_variance * sum((1 - rate) ** (2 * k) for k in range(steps))
    assert spread_of(updates) == pytest.approx(exact, rel=0.01)
    assert (
        exact
        < level.update_variance(steps, rate, step_variance)
        < exact / (1 - rate) ** (2 * steps)
    )
    small = rate / 1000
    slow = small**2 * step_variance * sum((1 - small) ** (2 * k) for k in range(steps))
    assert level.update_variance(steps, small, step_variance) == pytest.approx(
        slow, rel=2e-3
    )


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_no_weights_beat_the_oracle(variances, random):
    best = level.oracle_weights(variances)
    assert best.sum() == pytest.approx(1)
    assert level.mean_variance(best, variances) == pytest.approx(
        1 / sum(1 / v for v in variances)
    )
    worse = np.array([random.random() + 1e-9 for _ in variances])
    worse /= worse.sum()
    assert level.mean_variance(worse, variances) >= level.mean_variance(
        best, variances
    ) * (1 - 1e-9)


def spent(plan):
    return {row.group: row.epsilon_upper for row in plan.certificate if row.guarantee}


def test_every_budget_is_kept_and_used_up():
    plan = solve(records(cohort=2, local={"epochs": 2}))
    assert level.most_participations(plan.spec) == 2
    for group in plan.groups:
        assert 0.99 * group.epsilon <= spent(plan)[group.name] <= group.epsilon
        release = Release(group.noise_multiplier, group.record_sampling_ratio or 0)
        assert plan.history(group) == History.repeated(release, 2 * (group.steps or 0))
        again = accountant("pld").epsilon(
            plan.history(group), group.delta, "add_remove"
        )
        assert again.upper == spent(plan)[group.name]
    assert [group.steps for group in plan.groups] == [20, 10]
    assert [group.record_sampling_ratio for group in plan.groups] == [0.1, 50 / 240]
    assert [group.participations for group in plan.groups] == [2, 2]
    assert Plan.parse(json.loads(plan.to_json())) == plan


def test_replaced_records_need_more_noise():
    added = solve(records())
    replaced = solve(records(relation="replace_one"))
    for added_group, replaced_group in zip(added.groups, replaced.groups, strict=True):
        assert replaced_group.noise_multiplier > added_group.noise_multiplier
        assert spent(replaced)[replaced_group.name] <= replaced_group.epsilon


@given(st.floats(0.3, 8.0), st.floats(1.05, 4.0))
@settings(max_examples=5, deadline=None)
def test_more_epsilon_is_never_more_noise(epsilon, factor):
    data = record_data()
    noise_multipliers = []
    for budget in (epsilon, epsilon * factor):
        data["groups"] = [{**data["groups"][0], "epsilon": budget}]
        plan = solve(Spec.parse(data))
        assert spent(plan)["strict"] <= budget
        noise_multipliers.append(plan.groups[0].noise_multiplier)
    assert noise_multipliers[1] < noise_multipliers[0]


def test_fewer_turns_need_less_noise():
    all_rounds = level.solve_records(records())
    one_turn = level.solve_records(records(), participations=1)
    for group, one_turn_group in zip(all_rounds.groups, one_turn.groups, strict=True):
        assert one_turn_group.noise_multiplier < group.noise_multiplier
    with pytest.raises(
        InputError, match=r"participations: must be in \[1, 5\], found 6"
    ):
        level.solve_records(records(), participations=6)


def test_weights_by_rule():
    expected = {
        "epsilon": [1 / 11, 4 / 11],
        "population": [100 / 780, 240 / 780],
        "uniform": [0.2, 0.2],
    }
    for rule, single in expected.items():
        plan = solve(records(planning={"weights": rule}))
        assert level.client_weights(plan) == pytest.approx(single)
        assert plan.bound["least"] < plan.bound["noise"]
    oracle = solve(records())
    variances = level.noise_variances(oracle)
    weights = level.oracle_weights(np.repeat(variances, [3, 2]))[[0, 3]]
    assert level.client_weights(oracle) == pytest.approx(weights)
    assert oracle.bound["least"] == pytest.approx(oracle.bound["noise"])
    mean = 3 * level.client_weights(oracle)[0] ** 2 * variances[0]
    mean += 2 * level.client_weights(oracle)[1] ** 2 * variances[1]
    assert oracle.mean_noise_std**2 * oracle.spec.model.parameters == pytest.approx(
        mean
    )


def test_minimum_epsilon_gives_everybody_the_strictest_noise():
    plan = level.solve_records(
        records(planning={"weights": "population"}), strictest=True
    )
    own_noise_plan = solve(records())
    assert plan.groups[0].noise_multiplier == own_noise_plan.groups[0].noise_multiplier
    assert plan.groups[1].noise_multiplier > own_noise_plan.groups[1].noise_multiplier
    assert spent(plan)["loose"] <= 1.0
    assert plan.groups[1].epsilon == 4.0
    assert level.client_weights(plan) == pytest.approx([100 / 780, 240 / 780])


def test_budgets_of_clients_become_budgets_of_records():
    spec = make_spec(delta="n^-1.1")
    sizes = {"strict": 3, "loose": 40}
    plan = level.record_level(spec, sizes)
    assert plan == level.record_level(solve(spec), sizes)
    assert [(g.epsilon, g.delta) for g in plan.groups] == [
        (1.0, 500**-1.1),
        (4.0, 500**-1.1),
    ]
    assert [g.record_sampling_ratio for g in plan.groups] == [1.0, 5 / 40]
    assert [g.participations for g in plan.groups] == [1, 1]
    assert [g.steps for g in plan.groups] == [1, 8]
    assert all(spent(plan)[g.name] <= g.epsilon for g in plan.groups)
    strictest = level.record_level(
        spec, sizes, participations=2, weights="population", strictest=True
    )
    assert all(0 < spent(strictest)[g.name] <= 1.0 for g in strictest.groups)
    assert [g.participations for g in strictest.groups] == [2, 2]


def test_what_cannot_become_a_plan_of_records():
    with pytest.raises(InputError, match=r"records\.loose: must be 1 or more, found 0"):
        level.record_level(make_spec(), {"strict": 3})
    with pytest.raises(InputError, match="unit: must be client, found 'record'"):
        level.record_level(records(), {"strict": 3, "loose": 3})
    with pytest.raises(InputError, match="unit: must be record, found 'client'"):
        level.solve_records(make_spec())
