"""Budgets whose delta may cover the chance of ever taking part: planned, calibrated, certified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import noise_multiplier
from privplan.accounting.release import Relation
from privplan.errors import TooLittleNoiseError
from privplan.plan import Plan
from privplan.planning.explain import unspent_lines
from privplan.planning.noise import covered_ratio, curves_of, history_of, least_noise
from privplan.planning.problem import Limits
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import make_problem

SAMPLINGS = ("poisson", "fixed_size")


def _plan(groups: list[dict[str, Any]], *, equal: bool = False, **changes: Any) -> Plan:
    named = [{"name": f"g{i}", **group} for i, group in enumerate(groups)]
    data = {
        "name": "large",
        "groups": named,
        "rounds": 20,
        "cohort": 60,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "planning": {"free": ["weights"]} if equal else {},
    }
    return solve(Spec.parse({**data, **changes}), second_opinion=False)


def _kept(plan: Plan) -> bool:
    budgets = {group.name: group.epsilon for group in plan.groups}
    return all(row.epsilon_upper <= budgets[row.group] for row in plan.certificate if row.guarantee)


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    delta=st.floats(2e-3, 0.7),
    epsilon=st.floats(0.01, 8.0),
    rounds=st.integers(2, 40),
    cohort=st.integers(2, 120),
    sampling=st.sampled_from(SAMPLINGS),
)
@pytest.mark.slow
def test_every_large_delta_is_planned_no_worse_than_at_equal_ratios(
    delta: float, epsilon: float, rounds: int, cohort: int, sampling: str
) -> None:
    """At the same budgets; whole cohorts of few clients are rounded, which may cost a little."""
    groups = [
        {"clients": 300, "epsilon": epsilon, "delta": delta},
        {"clients": 300, "epsilon": 3.0, "delta": 1e-3},
    ]
    changes = {"rounds": rounds, "cohort": cohort, "sampling": sampling}
    plan, equal = _plan(groups, **changes), _plan(groups, equal=True, **changes)
    assert _kept(plan)
    assert _kept(equal)
    assert plan.objective.value <= equal.objective.value * (1 + 1e-3)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    "advantage", [0.02, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.2, 0.4, 0.6))]
)
def test_advantages_of_any_size_are_planned(advantage: float, sampling: str) -> None:
    groups = [
        {"clients": 300, "risk": {"advantage": advantage}},
        {"clients": 300, "epsilon": 3.0, "delta": 1e-3},
    ]
    plan = _plan(groups, sampling=sampling)
    assert _kept(plan)
    first = plan.groups[0]
    assert first.sampling_ratio > 2 * covered_ratio(first.delta, 20) / 3
    assert first.noise_multiplier > 0.2


def test_equal_large_deltas_are_planned() -> None:
    plan = _plan([{"clients": 100, "epsilon": 1.0, "delta": 0.3}] * 2, rounds=10, cohort=40)
    assert _kept(plan)
    assert [row.epsilon_upper > 0.99 for row in plan.certificate if row.guarantee] == [True] * 2


def test_a_cohort_so_small_that_any_noise_keeps_the_budget() -> None:
    """The least noise that is certified is taken, and the plan says why it spends nothing."""
    plan = _plan([{"clients": 100, "epsilon": 1.0, "delta": 0.3}] * 2, rounds=10, cohort=4)
    assert _kept(plan)
    assert all(group.noise_multiplier < 0.051 for group in plan.groups)
    lines = unspent_lines(plan)
    assert len(lines) == 2
    assert "covers the chance that a client ever takes part, so any noise keeps" in lines[0]


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    delta=st.floats(1e-3, 0.5),
    rounds=st.integers(1, 50),
    part=st.floats(0.01, 1.0),
    relation=st.sampled_from(["add_remove", "replace_one"]),
)
def test_up_to_the_jump_the_least_noise_is_certified(
    delta: float, rounds: int, part: float, relation: str
) -> None:
    ratio = part * covered_ratio(delta, rounds)
    assert 1 - (1 - ratio) ** rounds <= delta
    problem = make_problem(
        epsilons=(0.1,) * 3, deltas=(delta,) * 3, rounds=rounds, relation=Relation(relation)
    )
    noise = least_noise(problem, 0, ratio, "pld")
    assert noise < 0.11
    history = history_of(problem, ratio, noise)
    assert accountant("pld").epsilon(history, delta, problem.relation).upper <= 0.1
    less = history_of(problem, ratio, noise * 0.99)
    with pytest.raises(TooLittleNoiseError):
        accountant("pld").epsilon(less, delta, problem.relation)


@pytest.mark.parametrize(
    "relation", ["add_remove", pytest.param("replace_one", marks=pytest.mark.slow)]
)
def test_a_large_epsilon_gets_the_least_noise_that_is_certified(relation: str) -> None:
    problem = make_problem(epsilons=(1e5,) * 3, relation=Relation(relation))
    noise = least_noise(problem, 0, 0.1, "pld")
    history = history_of(problem, 0.1, noise)
    assert accountant("pld").epsilon(history, problem.deltas[0], problem.relation).upper < 1e5
    less = history_of(problem, 0.1, noise * 0.99)
    with pytest.raises(TooLittleNoiseError):
        accountant("pld").epsilon(less, problem.deltas[0], problem.relation)


def test_noise_between_a_covered_start_and_what_is_certified_is_found() -> None:
    """A search that starts where nothing is spent steps over the least noise, and comes back."""
    found = noise_multiplier(0.0841621, 0.582, sampling_ratio=0.1, rounds=20)
    assert found == pytest.approx(0.405, abs=0.02)


def test_a_curve_below_its_jump_is_constant() -> None:
    problem = make_problem(deltas=(0.3, 1e-3, 1e-3))
    covered = covered_ratio(0.3, problem.rounds) * 200
    limits = Limits(np.full(3, 0.1), np.array([covered, 200.0, 200.0]), np.zeros(3))
    noise, slopes = curves_of(problem, limits, "pld").at(np.array([[5e-3, 1e-2]] * 3))
    assert np.ptp(noise[0]) == 0
    assert noise[0, 0] < 0.06
    assert np.all(slopes[0] == 0)
    assert np.all(slopes[1:] > 0)
