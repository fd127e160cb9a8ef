"""Inverse questions: uploads, noise, fixed multipliers, and budgets stated as risks."""

import math
import re
from typing import Any

import pytest

from privplan.accounting.accountant import accountant
from privplan.errors import InfeasibleError, InputError
from privplan.planning.inverse import Unknown, solve_for, tried, with_uploads
from privplan.planning.risks import risks_of
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import members

BASE: dict[str, Any] = {
    "name": "inverse",
    "rounds": 20,
    "cohort": 40,
    "model": {"name": "mlp-digits", "parameters": 2410},
}


def _spec(*groups, **changes):
    return Spec.parse({**BASE, "groups": list(groups), **changes})


def norm(plan):
    plan = solve(plan) if isinstance(plan, Spec) else plan
    return plan.mean_noise_std * math.sqrt(plan.spec.model.parameters)


TWO = (members("strict", 300, 1.0), members("loose", 300, 4.0))
PUBLISHED = {"ratios": "gdpfed_plus", "max_uploads": 45.5}
LOOSE = [{**group, "epsilon": 20} for group in TWO]


@pytest.mark.parametrize(
    ("sampling", "stated_rounds", "planning"),
    [
        ("poisson", (80,), {"ratios": "uniform", "accountant": "rdp"}),
        pytest.param("poisson", (10, 80), {}, marks=pytest.mark.slow),
        pytest.param("fixed_size", (10, 80), {}, marks=pytest.mark.slow),
    ],
)
def test_the_most_rounds_within_a_limit_on_uploads_have_fewer_clients(
    sampling, stated_rounds, planning
):
    """Whatever rounds the spec names; one round more has more noise."""
    uploads = 400
    target = 0.8
    limit = {"max_uploads": uploads, **planning}
    specs = [
        _spec(*TWO, sampling=sampling, rounds=rounds, planning=limit, cohort=600)
        for rounds in stated_rounds
    ]
    plans = [solve_for(spec, {"noise": target}, "rounds") for spec in specs]
    [(rounds, cohort)] = {
        (plan.spec.rounds, plan.spec.expected_cohort) for plan in plans
    }
    assert rounds * cohort <= uploads
    assert cohort == uploads // rounds if sampling == "fixed_size" else uploads / rounds
    for extra_rounds, is_met in ((0, True), (1, False)):
        cohort_limit = uploads / (rounds + extra_rounds)
        clients = math.floor(cohort_limit) if sampling == "fixed_size" else cohort_limit
        settings = {"sampling": sampling, "cohort": clients, "planning": planning}
        spec = _spec(*TWO, rounds=rounds + extra_rounds, **settings)
        assert (norm(spec) <= target) == is_met
    assert f"asks for rounds {rounds} (" in plans[0].warnings[0]
    assert "limit" not in plans[0].warnings[0]


@pytest.mark.slow
def test_the_limit_that_ends_the_rounds_is_named():
    """One client of each group is the fewest, so 400 uploads are 200 rounds at most."""
    spec = _spec(*TWO, planning={"max_uploads": 400})
    plan = solve_for(spec, {"noise": 5.0}, "rounds")
    assert plan.spec.rounds == 200
    assert plan.spec.expected_cohort == 2
    limit = "rounds 200 (400 uploads), the most that the limits allow"
    assert limit in plan.warnings[0]


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["cohort", "epsilon", "rounds"])
def test_a_target_noise_is_met_and_not_much_less_is_asked(unknown):
    spec = _spec(*TWO)
    target = 0.8 * norm(spec)
    plan = solve_for(spec, {"noise": target}, unknown)
    assert 0.99 * target < norm(plan) <= target * (1 + 1e-3)
    assert plan.warnings[0].startswith(f"for: noise={target:g} asks for {unknown}")


@pytest.mark.parametrize(
    ("unknown", "changes"),
    [
        pytest.param(
            "cohort", {"planning": {"max_uploads": 700}}, marks=pytest.mark.slow
        ),
        ("cohort", {"sampling": "fixed_size", "planning": PUBLISHED}),
        pytest.param("rounds", {"planning": {"max_rounds": 9}}, marks=pytest.mark.slow),
        pytest.param("epsilon", {"groups": LOOSE}, marks=pytest.mark.slow),
    ],
)
def test_the_nearest_noise_that_is_named_can_be_planned(unknown, changes):
    """Within the same limits; no budget buys less noise than pld certifies."""
    spec = Spec.parse({**BASE, "groups": list(TWO), **changes})
    with pytest.raises(InfeasibleError, match=f"cannot be met by {unknown}") as caught:
        solve_for(spec, {"noise": 1e-3}, unknown)
    nearest = float(str(caught.value).split("nearest is noise=")[1].split()[0])
    if unknown == "epsilon":
        assert 10 < float(str(caught.value).split("epsilon x ")[1]) < 200
    for target in (nearest, 1e3):
        plan = solve_for(spec, {"noise": target}, unknown)
        assert norm(plan) <= target
        used = plan.spec.rounds * plan.spec.expected_cohort
        assert used <= (spec.planning.max_uploads or math.inf) * (1 + 1e-12)
        assert plan.spec.rounds <= (spec.planning.max_rounds or math.inf)


def meets(plan, targets):
    """Whether a plan meets every target: a share at least, anything else at most."""
    strict, loose = plan.groups
    reached = {
        "noise": norm(plan),
        "objective": plan.objective.value,
        "strict.counts": strict.weight * plan.spec.population / strict.clients,
        "loose.noise_multiplier": loose.noise_multiplier,
    }
    excesses = {name: reached[name] - goal for name, goal in targets.items()}
    if "strict.counts" in excesses:
        excesses["strict.counts"] *= -1
    return max(excesses.values()) <= 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("targets", "unknown"),
    [
        ({"strict.counts": 0.9}, "strict.epsilon"),
        ({"noise": 0.09, "strict.counts": 0.87}, "strict.epsilon"),
        ({"loose.noise_multiplier": 1.0}, "loose.delta"),
        ({"noise": 0.08}, "strict.clients"),
        ({"objective": 0.001}, "loose.epsilon"),
    ],
)
def test_a_groups_own_budget_or_number_is_the_least_that_meets_every_target(
    targets, unknown
):
    """Met by the plan that comes back, and not where the unknown is 0.5% less."""
    plan = solve_for(_spec(*TWO), targets, unknown)
    name, field = unknown.split(".")
    [solved_group] = [group for group in plan.spec.groups if group.name == name]
    value = getattr(solved_group, field)
    assert f"asks for {unknown} {value:.6g} (" in plan.warnings[0]
    smaller = math.floor(value * 0.995) if field == "clients" else value * 0.995
    groups = [
        {**group, field: smaller} if group["name"] == name else group for group in TWO
    ]
    assert meets(plan, targets)
    assert not meets(solve(_spec(*groups)), targets)


@pytest.mark.slow
def test_the_fewest_clients_meet_the_noise_and_fewer_do_not():
    plan = solve_for(_spec(*TWO), {"noise": 0.08}, "clients")
    population = plan.spec.population
    assert f"asks for clients {population} (" in plan.warnings[0]
    assert norm(plan) <= 0.08
    base_population = sum(group["clients"] for group in TWO)
    fewer = [
        {
            **group,
            "clients": math.floor(
                0.99 * group["clients"] * population / base_population
            ),
        }
        for group in TWO
    ]
    assert norm(solve(_spec(*fewer))) > 0.08


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (lambda x: math.exp(x - 1.234), (1.234, None)),
        # Met at the cheap end, from there on.
        (lambda x: math.exp(1.234 - x), (8.0, 1.234)),
        # A plateau on both sides.
        (lambda x: 0.5 if -4 < x < -2.5 else 2.0, (-2.5, -4.0)),
        # Narrow.
        (lambda x: math.exp(30 * abs(x - 0.21) - 1), (0.21 + 1 / 30, 0.21 - 1 / 30)),
        # No plan at costly values.
        (lambda x: math.inf if x < 0 else 0.7, (8.0, 0.0)),
        # Never met: the cheapest of the nearest.
        (lambda x: 3.0, (8.0, None)),
        (lambda x: 2 + abs(x + 3), (-3.0, None)),
    ],
)
def test_ends_of_the_values_that_meet_a_target(cost, expected):
    """The cheapest value on a curve of any shape, and where its interval ends."""
    values = Unknown("strict.epsilon", lambda value: _spec(*TWO), -8.0, 8.0, 0.0, -1.0)
    value, end = tried(values, cost)
    assert value == pytest.approx(expected[0], abs=0.011 if cost(value) > 1 else 1e-3)
    assert end == (
        None if expected[1] is None else pytest.approx(expected[1], abs=1e-3)
    )


@pytest.mark.parametrize(
    ("changes", "uploads", "line"),
    [
        ({}, -1, "max_uploads: must be positive and finite, found -1"),
        (
            {"planning": {"max_uploads": 600}},
            900,
            "max_uploads: must be at most planning.max_up",
        ),
        (
            {"sampling": "full", "cohort": None},
            90,
            "max_uploads: is for specs with a cohort",
        ),
    ],
)
def test_uploads_that_cannot_be_planned(changes, uploads, line):
    with pytest.raises(InputError, match=f"^{line}"):
        with_uploads(_spec(*TWO, **changes), uploads)


@pytest.mark.parametrize("name", ["accuracy", "strict.accuracy"])
def test_a_share_is_no_accuracy_in_percent(name):
    line = (
        "for: must be a percentage from 1 to below 100; 0.8 is less than 1%: "
        f"write {name}=80, found '{name}=0.8'"
    )
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        solve_for(_spec(*TWO), {name: 0.8}, forecast=lambda plan: plan)


def test_clients_end_at_the_cohort_and_say_so():
    plan = solve_for(_spec(*TWO), {"noise": 100.0}, "clients")
    cohort = plan.spec.expected_cohort
    assert plan.spec.population == pytest.approx(cohort, abs=len(TWO))
    assert f", the fewest for a cohort of {cohort:g}; a smaller" in plan.warnings[0]
    assert (
        "the fewest"
        not in solve_for(_spec(*TWO), {"noise": 0.08}, "clients").warnings[0]
    )


def test_too_few_uploads_are_infeasible_however_they_are_asked_for():
    with pytest.raises(
        InfeasibleError, match=r"^max_uploads: 3 is below .* value is 40$"
    ):
        with_uploads(_spec(*TWO), 3)
    with pytest.raises(
        InfeasibleError, match=r"^planning\.max_uploads: 39 is below .* value is"
    ):
        solve(_spec(*TWO, planning={"max_uploads": 39}))


def _fixed(**changes):
    return {"name": "all", "clients": 400, "noise_multiplier": 1.2, **changes}


def test_a_fixed_noise_gives_the_epsilon_of_the_accountant():
    spec = _spec(_fixed(), planning={"ratios": "uniform"})
    plan = solve(spec)
    [group] = plan.groups
    assert group.noise_multiplier == 1.2
    spent = accountant("pld").epsilon(
        plan.history(group), group.delta, plan.spec.relation
    )
    assert group.epsilon == spec.groups[0].epsilon == spent.upper
    assert Spec.parse(spec.model_dump(mode="json")) == spec


POSITIVES = ("true_positives", "false_positives")


@pytest.fixture(scope="module")
def risky():
    return solve(
        _spec(
            {"name": "a", "clients": 300, "risk": {"advantage": 0.15}},
            {
                "name": "b",
                "clients": 300,
                "risk": dict(zip(POSITIVES, (0.08, 0.01), strict=True)),
            },
            {
                "name": "c",
                "clients": 300,
                "risk": dict(zip(POSITIVES, (0.1, 0.001), strict=True)),
            },
            planning={"ratios": "uniform"},
        )
    )


def test_risks_hold_and_are_used_up(risky):
    a, b, c = (risk.curve for risk in risks_of(risky))
    assert 0.15 * 0.99 < a.advantage <= 0.15
    assert 0.08 * 0.99 < b.true_positives[1] <= 0.08
    assert 0.1 * 0.99 < c.true_positives[0] <= 0.1
    assert risks_of(risky)[0].stated_risk == "advantage 0.15"
