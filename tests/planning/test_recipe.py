"""The default recipe: when a spec asks for it, what it decides and what it leaves."""

import json
import math
from typing import Any

import numpy as np
import pytest

from privplan.plan import Plan
from privplan.planning.alternatives import attention_lines
from privplan.planning.baselines import strictest, uniform
from privplan.planning.recipe import NOT_TUNED, recipe_lines, relative_noise
from privplan.planning.records import record_level
from privplan.planning.solver import solve
from privplan.planning.sweep import with_point
from privplan.spec.spec import Spec
from privplan.spec.training import local_rate, walk

DATA: dict[str, Any] = {
    "name": "open",
    "groups": [
        {"name": "strict", "clients": 100, "epsilon": 1.0},
        {"name": "loose", "clients": 100, "epsilon": 8.0},
    ],
    "rounds": 10,
    "cohort": 40,
    "model": {"name": "mlp-digits", "parameters": 2410},
    "planning": {"accountant": "rdp"},
}


def solved(**changes):
    return solve(Spec.parse({**DATA, **changes}))


def test_the_step_with_its_noise_has_one_length():
    for epsilon, rate in ((0.2, 0.1), (9.0, 0.03)):
        groups = [{**group, "epsilon": epsilon} for group in DATA["groups"]]
        plan = solved(groups=groups, local={"learning_rate": rate})
        spec = plan.spec
        assert spec.clipping_norm == rate
        nu = plan.mean_noise_std / spec.clipping_norm
        assert relative_noise(plan) == pytest.approx(nu * math.sqrt(2410))
        step = (
            spec.server.learning_rate
            * spec.clipping_norm
            * math.hypot(1, nu * 2410**0.5)
        )
        assert step == pytest.approx(22 * rate, rel=1e-3)
        assert spec.averaging.decay == 0.8


def test_noise_ratios_and_weights_are_those_without_the_recipe():
    plan = solved()
    plain = solved(recipe="none")
    assert plain.spec.server is None
    assert plain.spec.clipping_norm == 1.0
    for group, plain_group in zip(plan.groups, plain.groups, strict=True):
        assert group.noise_multiplier == pytest.approx(
            plain_group.noise_multiplier, rel=1e-6
        )
        assert group.sampling_ratio == pytest.approx(
            plain_group.sampling_ratio, rel=1e-6
        )
        assert group.weight == pytest.approx(plain_group.weight, rel=1e-6)
    assert plan.mean_noise_std == pytest.approx(0.1 * plain.mean_noise_std)


def test_a_solved_spec_gives_the_same_plan_again():
    plan = solved()
    assert solve(plan.spec).digest == plan.digest
    assert Plan.parse(json.loads(plan.to_json())) == plan
    assert solve(Spec.parse(plan.spec.model_dump(mode="json"))).digest == plan.digest


@pytest.mark.parametrize(
    "fields",
    [
        {"clipping_norm": 1.0},
        {"server": {"optimizer": "sgd"}},
        {"averaging": {}},
        {"recipe": "none"},
        {"planning": {"accountant": "rdp", "clipping": {}}},
        {"planning": {"ratios": "uniform", "accountant": "rdp"}},
    ],
)
def test_explicit_fields_stay_as_given(fields):
    spec = Spec.parse({**DATA, **fields})
    plan = solve(spec)
    assert plan.spec.server == spec.server
    assert plan.spec.averaging == spec.averaging
    assert plan.spec.clipping_norm == 1.0
    assert recipe_lines(plan) == [NOT_TUNED]


@pytest.mark.parametrize(
    "settings",
    [
        {"heterogeneity": 0.1 / 6},
        {"least_share": 0.0},
        {"update_norm": 0.3, "heterogeneity": 0.05},
        {"constants": {"smoothness": 1.0, "initial_gap": 2.0}},
    ],
)
def test_what_is_known_for_planning_leaves_the_recipe_on(settings):
    """Clipping shrinks heterogeneity as it does updates: 0.05 of 0.3 is 0.1 / 6."""
    plan = solved(planning={"accountant": "rdp", **settings})
    assert plan.spec.clipping_norm == 0.1
    assert plan.spec.recipe.decides == ("clipping_norm", "server", "averaging")
    if "heterogeneity" in settings:
        weights = [group.weight for group in solved().groups]
        assert [group.weight for group in plan.groups] == pytest.approx(weights)


def test_by_name_the_recipe_decides_what_is_left():
    plan = solved(recipe="default", clipping_norm=0.5)
    assert plan.spec.clipping_norm == 0.5
    assert plan.spec.recipe.decides == ("server", "averaging")
    assert plan.spec.server is not None
    assert "not tuned on private data" in recipe_lines(plan)[-1]
    assert (
        "write recipe: default to have the rest decided"
        in attention_lines(solved(clipping_norm=0.5))[0]
    )
    assert not attention_lines(solved(clipping_norm=0.5, recipe="none"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{}, {"clipping_norm": 0.5}, {"local": {"momentum": 0.9}}]
)
def test_a_source_alone_decides_what_the_name_decides(fields):
    """A list of fields, as solved specs write it, is kept; an empty one decides
    nothing.
    """
    by_name = Spec.parse({**DATA, **fields, "recipe": "default"})
    assert Spec.parse({**DATA, **fields, "recipe": {"source": "default"}}) == by_name
    assert Spec.parse({**DATA, **fields, "recipe": {}}) == by_name
    assert Spec.parse(by_name.model_dump(mode="json")) == by_name
    nothing = Spec.parse(
        {**DATA, **fields, "recipe": {"source": "default", "decides": []}}
    )
    assert nothing.recipe.decides == ()
    for recipe in ("default", {"source": "default", "decides": []}):
        plan = solved(**fields, recipe=recipe)
        assert Plan.parse(json.loads(plan.to_json())).digest == plan.digest


def test_momentum_carries_a_client_no_farther_than_thirty_steps():
    for steps, momentum, length in (
        (1, 0.9, 1.0),
        (2, 0.5, 2.5),
        (30, 0.9, 213.8),
        (7, 0.0, 7.0),
    ):
        # Step n moves by the sum of momentum^k over the n gradients so far.
        moves = [float(np.sum(momentum ** np.arange(n))) for n in range(1, steps + 1)]
        assert walk(steps, momentum) == pytest.approx(sum(moves))
        assert walk(steps, momentum) == pytest.approx(length, rel=1e-3)
    # At its bounds despite rounding.
    assert walk(5, 1 - 1e-14) == pytest.approx(15.0, rel=0.7)
    for steps, momentum in ((5, 0.0), (200, 0.0), (5, 0.9), (25, 0.1)):
        assert local_rate(steps, momentum) == 0.1
    assert local_rate(30, 0.9) == pytest.approx(0.1 * 30 / walk(30, 0.9), rel=1e-3)
    assert local_rate(200, 0.9) == pytest.approx(0.1 * 200 / walk(200, 0.9), rel=1e-3)


def test_the_recipe_decides_the_local_rate_of_momentum():
    plan = solved(local={"steps": 30, "momentum": 0.9})
    plain = solved(local={"steps": 30})
    assert "local.learning_rate" in plan.spec.recipe.decides
    assert plan.spec.local.learning_rate == local_rate(30, 0.9)
    # the step of the server and the clipping norm are those of the unit, 0.1
    assert plan.spec.clipping_norm == plain.spec.clipping_norm == 0.1
    assert plan.spec.server == plain.spec.server
    assert plan.mean_noise_std == plain.mean_noise_std
    assert "local.learning_rate" not in plain.spec.recipe.decides
    again = solve(Spec.parse(plan.spec.model_dump(mode="json")))
    assert again.digest == plan.digest
    assert recipe_lines(plan)[1].startswith(
        "local learning rate 0.01403: 30 steps with momentum"
    )
    assert uniform(plan.spec).spec.local.learning_rate == 0.1  # baselines, as before
    varied = with_point(plan.spec.model_dump(mode="json"), {"local.momentum": 0.5})
    assert Spec.parse(varied).local.learning_rate == local_rate(30, 0.5)


def test_baselines_train_as_without_the_recipe():
    plan = solved()
    for make in (uniform, strictest):
        spec = make(plan.spec).spec
        assert spec.clipping_norm == 1.0
        assert spec.server is None
        assert spec.averaging is None
    assert record_level(plan, {"strict": 10, "loose": 10}).spec.server is None
