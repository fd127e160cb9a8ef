"""Plans whose clients take turns and whose noise is correlated over a cycle."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from privplan.errors import InputError
from privplan.planning.inverse import solve_for, with_uploads
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import members

TURNS = 5


def data(**changes):
    groups = [
        {"name": name, "clients": 1000, "epsilon": epsilon}
        for name, epsilon in {"strict": 0.5, "medium": 1.5, "loose": 3.0}.items()
    ]
    plain = {
        "name": "turns",
        "groups": groups,
        "delta": 1e-4,
        "rounds": 50,
        "cohort": 60,
        "sampling": f"cyclic_poisson:{TURNS}",
        "model": {"name": "mlp", "parameters": 20_000},
    }
    return {**plain, **changes}


@pytest.fixture(scope="module")
def plan():
    return solve(Spec.parse(data(planning={"slack": 0})))


def test_budgets_are_kept_and_used_up_by_another_accountant(plan):
    for group in plan.groups:
        turn = pld.from_gaussian_mechanism(
            group.noise_multiplier,
            sampling_prob=group.sampling_ratio,
            value_discretization_interval=2e-4,
            pessimistic_estimate=True,
        )
        spent = turn.self_compose(plan.spec.rounds // TURNS).get_epsilon_for_delta(1e-4)
        assert 0.98 * group.epsilon < spent < 1.005 * group.epsilon
    assert {row.sampling for row in plan.certificate} == {f"cyclic_poisson:{TURNS}"}


def test_it_is_the_plan_of_one_turn(plan):
    """As much noise as for a fifth of the clients, drawn in a fifth of the rounds."""
    fifths = [{**group, "clients": 200} for group in data()["groups"]]
    settings = {"planning": {"ratios": "noise"}, "recipe": "none"}
    turn_plan = solve(
        Spec.parse(data(sampling="poisson", rounds=10, groups=fifths, **settings))
    )
    cyclic_plan = solve(Spec.parse(data(**settings)))
    for group, turn_group in zip(cyclic_plan.groups, turn_plan.groups, strict=True):
        assert group.clients == 5 * turn_group.clients
        assert group.expected_cohort == pytest.approx(
            turn_group.expected_cohort, rel=1e-3
        )
        assert group.sampling_ratio == pytest.approx(
            turn_group.sampling_ratio, rel=1e-3
        )
        assert group.noise_multiplier == pytest.approx(
            turn_group.noise_multiplier, rel=1e-3
        )
    assert sum(group.expected_cohort for group in plan.groups) == pytest.approx(60)


def test_the_last_model_holds_less_noise_than_with_independent_draws(plan):
    settings = {"planning": {"least_share": 0.0}}
    independent = solve(Spec.parse(data(sampling="poisson", **settings)))
    assert relative_noise(solve(Spec.parse(data(**settings)))) < 0.75 * relative_noise(
        independent
    )
    independent = solve(Spec.parse(data(sampling="poisson")))
    assert relative_noise(plan) < 0.95 * relative_noise(independent)
    assert plan.mean_noise_std > independent.mean_noise_std


def test_the_recipe_decides_the_momentum_that_the_noise_is_made_for(plan):
    server = plan.spec.server
    assert server.optimizer == "momentum"
    assert server.momentum == 0.5
    again = solve(Spec.parse(plan.spec.model_dump(mode="json")))
    assert again.groups == plan.groups
    assert again.spec == plan.spec


def test_groups_whose_calibration_needs_a_second_search():
    groups = [members("strict", 37, 3.0), members("loose", 53, 10.0)]
    changes = {"groups": groups, "rounds": 20, "cohort": 10, "relation": "replace_one"}
    solved = solve(
        Spec.parse({**data(**changes), "model": {"name": "own", "parameters": 14}})
    )
    for group in solved.groups:
        rows = [
            row
            for row in solved.certificate
            if row.group == group.name and row.guarantee
        ]
        assert rows[0].epsilon_upper <= group.epsilon


@pytest.mark.slow
def test_questions_about_turns():
    spec = Spec.parse(data())
    target = 1.1 * solve(spec).mean_noise_std * math.sqrt(20_000)
    fewer = solve_for(spec, {"noise": target})
    assert fewer.spec.expected_cohort < 60
    assert fewer.mean_noise_std * math.sqrt(20_000) <= target
    with pytest.raises(
        InputError, match="solve_for: must be cohort or epsilon under cyclic"
    ):
        solve_for(spec, {"noise": target}, "rounds")
    with pytest.raises(
        InputError, match="max_uploads: must be left out under cyclic_poisson:5"
    ):
        with_uploads(spec, 2000.0)
