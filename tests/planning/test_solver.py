"""Plans end to end: budgets kept, constraints kept, warnings where they belong."""

import math

import pytest

from privplan.accounting.calibrate import noise_multiplier
from privplan.errors import UnsupportedError
from privplan.planning.baselines import optimised, strictest, uniform
from privplan.planning.solver import solve
from privplan.planning.unspent import unspent_lines
from tests.planning.problems import keeps_every_budget, make_spec, members


@pytest.mark.parametrize(
    "accountant",
    ["rdp", "pld", pytest.param("prv", marks=pytest.mark.slow), "closed_form"],
)
def test_every_accountant_gives_a_plan_within_its_budgets(accountant):
    plan = solve(make_spec(planning={"accountant": accountant}))
    assert keeps_every_budget(plan)
    assert sum(group.expected_cohort for group in plan.groups) == pytest.approx(
        50, rel=1e-12
    )
    assert sum(group.weight for group in plan.groups) == pytest.approx(1, rel=1e-12)
    # PRV is slow, so it certifies only where it was asked for.
    requested_accountants = {"prv"} if accountant == "prv" else set()
    assert {row.accountant for row in plan.certificate} == {
        "pld",
        "rdp",
    } | requested_accountants


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("sampling", ["poisson", "fixed_size", "full"])
def test_every_cell_gives_a_plan_within_its_budgets(sampling, relation):
    cohort = 500 if sampling == "full" else 50
    plan = solve(
        make_spec(
            sampling=sampling,
            relation=relation,
            cohort=cohort,
            planning={"accountant": "pld"},
        )
    )
    assert keeps_every_budget(plan)
    assert all(row.sampling == sampling for row in plan.certificate)
    assert all(row.relation == relation for row in plan.certificate)
    if sampling == "fixed_size":
        assert all(g.expected_cohort == round(g.expected_cohort) for g in plan.groups)
    assert sum(group.expected_cohort for group in plan.groups) == pytest.approx(cohort)


@pytest.mark.parametrize("ratios", ["balanced", "noise"])
@pytest.mark.parametrize(("sampling", "cohort"), [("full", None), ("fixed_size", 500)])
def test_searched_plans_of_everybody(sampling, cohort, ratios):
    planning = {"accountant": "pld", "ratios": ratios}
    plan = solve(make_spec(sampling=sampling, cohort=cohort, planning=planning))
    assert keeps_every_budget(plan)
    assert all(group.sampling_ratio == 1 for group in plan.groups)


def test_noise_is_the_least_that_the_accountant_allows():
    plan = solve(make_spec())
    for group in plan.groups:
        least_multiplier = noise_multiplier(
            group.epsilon,
            group.delta,
            sampling_ratio=group.sampling_ratio,
            rounds=plan.spec.rounds,
            accountant="rdp",
            rtol=1e-6,
        )
        assert (
            least_multiplier * (1 - 1e-6)
            <= group.noise_multiplier
            <= least_multiplier * (1 + 2e-4)
        )


def test_given_ratios_are_taken():
    groups = [
        members("a", 100, 1.0, sampling_ratio=0.1),
        members("b", 100, 2.0, sampling_ratio=0.3, delta=1e-5),
    ]
    plan = solve(make_spec(groups=groups, cohort=None, planning={"ratios": "given"}))
    assert [g.sampling_ratio for g in plan.groups] == pytest.approx([0.1, 0.3])
    assert [g.delta for g in plan.groups] == [1e-4, 1e-5]
    assert "given" in plan.status


def test_bound_noise_and_weights_by_hand():
    plan = solve(make_spec(clipping_norm=2.0, planning={"sparsification": [0.5, 1.0]}))
    strict, loose = plan.groups
    shares = [g.weight * g.noise_multiplier / g.expected_cohort for g in plan.groups]
    assert plan.mean_noise_std == pytest.approx(2.0 * math.hypot(*shares))
    assert plan.bound["privacy_noise"] == pytest.approx(
        8 * (0.5 * shares[0] ** 2 + shares[1] ** 2)
    )
    assert plan.bound["sparsification"] == pytest.approx(16.12 * strict.weight * 0.25)
    squares = [strict.expected_cohort**2, loose.expected_cohort**2]
    assert strict.weight == pytest.approx(squares[0] / sum(squares))


def test_closed_form_says_loudly_when_its_conditions_fail():
    plan = solve(make_spec(planning={"accountant": "closed_form"}))
    assert any("NOT a guarantee" in line and "alpha" in line for line in plan.warnings)


def test_too_little_noise_of_the_closed_form_is_raised_by_the_guarantee():
    """At epsilon 8 Theorem 1 asks for sigma = 0.3 or so, far below its condition."""
    groups = [members("a", 250, 6.0), members("b", 250, 8.0)]
    plan = solve(
        make_spec(groups=groups, rounds=3, planning={"accountant": "closed_form"})
    )
    assert keeps_every_budget(plan)
    assert any("raised to" in line and "by pld" in line for line in plan.warnings)


def test_a_cell_that_the_accountant_does_not_cover_is_refused():
    with pytest.raises(UnsupportedError, match="closed_form"):
        solve(make_spec(relation="replace_one", planning={"accountant": "closed_form"}))


def test_variants_keep_every_budget():
    spec = make_spec(planning={"sparsification": [0.7, 0.9]})
    uniform_plan = uniform(spec)
    optimised_plan = optimised(spec)
    strictest_plan = strictest(spec)
    for plan in (uniform_plan, optimised_plan, strictest_plan):
        assert keeps_every_budget(plan)
        assert all(group.kept_fraction == 1 for group in plan.groups)
    assert [g.sampling_ratio for g in uniform_plan.groups] == pytest.approx([0.1, 0.1])
    assert (
        optimised_plan.groups[0].sampling_ratio
        < optimised_plan.groups[1].sampling_ratio
    )
    assert optimised_plan.objective.value <= uniform_plan.objective.value


def test_the_strictest_plan_scales_nobody_where_persons_have_several_clients():
    """Its method clips all updates to one norm, so one noise serves all groups."""
    groups = [members("one", 100, 2.0), members("two", 100, 8.0, contributions=2)]
    pld = {"accountant": "pld"}
    plan = strictest(make_spec(groups=groups, planning=pld))
    assert [group.scale for group in plan.groups] == [1.0, 1.0]
    noise = {group.noise_multiplier for group in plan.groups}
    assert len(noise) == 1
    of_one_client = [groups[0], members("two", 100, 8.0)]
    alone = strictest(make_spec(groups=of_one_client, planning=pld))
    assert noise.pop() > 1.5 * alone.groups[0].noise_multiplier


def test_the_strictest_plan_is_one_mean_under_the_smallest_budget():
    plan = strictest(make_spec())
    assert plan.release == "joint"
    sigma = noise_multiplier(1.0, 1e-4, sampling_ratio=0.1, rounds=10, accountant="rdp")
    assert [g.noise_multiplier for g in plan.groups] == pytest.approx([sigma, sigma])
    assert [g.weight for g in plan.groups] == pytest.approx([0.4, 0.6])
    assert [g.scale for g in plan.groups] == [1.0, 1.0]
    assert plan.mean_noise_std == pytest.approx(sigma / 50)


def test_a_negligible_group_whose_budget_only_the_tight_accountant_meets():
    """RDP certifies no epsilon below 1.24e-5 here, which makes no plan infeasible."""
    groups = [
        members("large", 3000, 3.0, delta=1e-4),
        members("tiny", 3000, 1e-5, delta=1e-8),
    ]
    planning = {"accountant": "pld", "ratios": "balanced", "least_share": 0.0}
    plan = solve(make_spec(groups=groups, cohort=60, rounds=20, planning=planning))
    assert keeps_every_budget(plan)
    assert plan.groups[1].weight < 1e-3


def test_a_negligible_group_spends_its_budget():
    groups = [
        members("large", 300, 9.0, delta=1e-5),
        members("small", 3000, 0.2, delta=1e-5),
    ]
    planning = {
        "accountant": "pld",
        "ratios": "noise",
        "release": "per_group",
        "least_share": 0.0,
    }
    plan = solve(make_spec(groups=groups, cohort=60, rounds=50, planning=planning))
    spent = {row.group: row.epsilon_upper for row in plan.certificate if row.guarantee}
    assert 0.98 * 0.2 < spent["small"] <= 0.2
    assert not unspent_lines(plan)


@pytest.mark.parametrize(
    ("sampling", "cohort", "least_multiplier"),
    [("full", 100, 0.01), ("fixed_size", 20, 0.1)],
)
def test_a_budget_beyond_the_least_noise_says_so(sampling, cohort, least_multiplier):
    groups = [{"name": "a", "clients": 100, "epsilon": 1e9}]
    spec = make_spec(
        groups=groups, delta=1e-5, cohort=cohort, rounds=20, sampling=sampling
    )
    (line,) = unspent_lines(solve(spec))
    assert line.endswith(
        f"less noise than {least_multiplier:g} is neither certified nor planned"
    )


def test_a_tiny_budget_that_delta_covers_is_planned_under_full_participation():
    groups = [{"name": "a", "clients": 10, "epsilon": 1e-12, "delta": 0.09}]
    planning = {"accountant": "pld"}
    plan = solve(
        make_spec(
            groups=groups, cohort=10, rounds=3, sampling="full", planning=planning
        )
    )
    assert keeps_every_budget(plan)
    for line in unspent_lines(plan):
        assert "no smaller noise multiplier keeps the budget" in line
