"""Sentences on a plan: their numbers come from plans with one budget changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from privplan.plan import Plan
from privplan.planning.explain import budget_values, reasons
from privplan.planning.solver import solve
from privplan.spec.spec import Spec


def _data(epsilons: tuple[float, ...], **planning: Any) -> dict[str, Any]:
    return {
        "name": "why",
        "groups": [
            {"name": f"g{number}", "clients": 200, "epsilon": epsilon}
            for number, epsilon in enumerate(epsilons)
        ],
        "rounds": 10,
        "sampling": "full",
        "model": {"name": "m", "parameters": 1000},
        "planning": planning,
    }


@pytest.fixture(scope="module")
def plan() -> Plan:
    return solve(Spec.parse(_data((0.5, 4.0))))


def test_values_are_differences_of_plans(plan: Plan) -> None:
    strict, loose = budget_values(plan)
    more = solve(Spec.parse(_data((0.5 * 1.1, 4.0))))
    fall = 1 - more.objective.value / plan.objective.value
    assert strict.objective_gain == pytest.approx(fall, abs=2e-4)
    equal = solve(Spec.parse(_data((4.0, 4.0))))
    assert strict.cost == pytest.approx(1 - equal.objective.value / plan.objective.value, abs=2e-4)
    assert loose.cost == 0


def test_a_plan_that_names_the_bias_leaning_is_read_and_explained_as_before(plan: Plan) -> None:
    terms = {("leaning" if name == "bias" else name): value for name, value in plan.bound.items()}
    assert "leaning" in terms
    old = plan.model_copy(update={"bound": terms})
    read = Plan.parse(json.loads(old.to_json()))
    assert read == old
    assert read.digest == old.digest != plan.digest
    assert reasons(read) == reasons(plan)


def test_plans_by_a_rule_have_no_such_values() -> None:
    plan = solve(Spec.parse(_data((0.5, 4.0), ratios="uniform")))
    assert budget_values(plan) == []
