"""Free sampling takes the law of least noise that clients can follow."""

import json
import math
from typing import Any

import pytest

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.law_choice import with_best_law
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.report.tables import laws_table
from privplan.spec.spec import Spec

FREE = ["ratios", "weights", "sampling"]


def spec_of(participation=None, *, rounds=10, cohort=60, sampling="poisson", **changes):
    planning = {"free": FREE}
    if participation is not None:
        planning["participation"] = participation
    data = {
        "name": "fleet",
        "groups": [
            {"name": "strict", "clients": 300, "epsilon": 1.0},
            {"name": "loose", "clients": 300, "epsilon": 3.0},
        ],
        "rounds": rounds,
        "cohort": cohort,
        "sampling": sampling,
        "planning": planning,
        "model": {"name": "own", "parameters": 1000},
    }
    return Spec.parse({**data, **changes})


def setting_a(law, cohort, planning):
    groups = []
    for epsilon in (0.5, 1.5, 3.0):
        groups.append({"name": f"e{epsilon}", "clients": 2000, "epsilon": epsilon})
    return Spec.parse(
        {
            "name": "A",
            "groups": groups,
            "rounds": 50,
            "cohort": cohort,
            "sampling": law,
            "planning": planning,
            "model": {"name": "cnn-2-valid", "parameters": 18378},
        }
    )


def noise_by_law(compared):
    return {law.sampling: law.noise for law in compared}


def reason_by_law(compared):
    return {law.sampling: law.reason for law in compared if law.reason}


FAMILIES = {
    "poisson",
    "cyclic_poisson",
    "random_allocation",
    "cyclic_allocation",
    "balls_in_bins",
    "min_separation",
    "banded_separation",
}


@pytest.mark.parametrize(
    "laws", [{"poisson"}, pytest.param(FAMILIES, marks=pytest.mark.slow)]
)
def test_the_choice_is_the_least_of_plans_that_are_solved_by_themselves(laws):
    """Of the chosen law and of others."""
    fleet: dict[str, Any] = {"rounds": 4, "cohort": 150}
    chosen = solve(spec_of(**fleet))
    assert chosen.compared_laws is not None
    noise_of_choice = relative_noise(chosen)
    families = set()
    for law in chosen.compared_laws:
        assert law.noise is not None
        assert law.noise >= noise_of_choice
        family = law.sampling.partition(":")[0]
        families.add(family)
        is_chosen = chosen.spec.sampling == law.sampling
        if not is_chosen and family not in laws:
            continue
        cohort = fleet["cohort"] if "poisson" in law.sampling else None
        changes = {"sampling": law.sampling, "cohort": cohort, "planning": {}}
        stated = spec_of(**{**fleet, **changes})
        noise = relative_noise(solve(stated))
        assert law.noise == pytest.approx(noise, rel=5e-3)
        if is_chosen:
            assert law.noise == noise_of_choice
        else:
            assert noise > noise_of_choice
    assert families == FAMILIES


def test_a_plan_keeps_what_was_compared_and_shows_it():
    plan = solve(spec_of("when_they_can"))
    assert plan.spec.sampling == "banded_separation:10"
    assert plan.spec.planning.free == ("ratios", "weights")
    assert Plan.parse(json.loads(plan.to_json())).compared_laws == plan.compared_laws
    table = laws_table(plan.compared_laws or ())
    names = [row[0] for row in table.rows]
    assert names[:3] == ["banded_separation:10", "min_separation:10", "poisson"]
    assert names[3:5] == ["balls_in_bins", "cyclic_allocation"]
    assert names[5:] == ["cyclic_poisson", "random_allocation"]
    assert table.rows[0][1:] == [f"{relative_noise(plan):.4g}", "+0.0%"]
    assert table.rows[2][1:] == ["-", "needs participation: server_draws"]


@pytest.mark.slow
def test_setting_a_is_at_least_as_good_as_ten_rounds_in_five_turns():
    planning = {"free": ["ratios", "weights"]}
    stated_plan = solve(setting_a("cyclic_allocation:5:10", None, planning))
    decided, compared = with_best_law(setting_a("poisson", 120, {"free": FREE}))
    noise = noise_by_law(compared)
    assert len(noise) == 14
    assert noise["cyclic_allocation:5:10"] == pytest.approx(
        relative_noise(stated_plan), rel=5e-3
    )
    assert noise[decided.sampling] == min(noise.values()) < relative_noise(stated_plan)


@pytest.mark.parametrize(
    ("sampling", "cohort", "first_possible"),
    [
        pytest.param("cyclic_poisson:2", 60, "server_draws", marks=pytest.mark.slow),
        pytest.param(
            "random_allocation:10", None, "clients_choose", marks=pytest.mark.slow
        ),
        ("banded_separation:10", None, "when_they_can"),
    ],
)
def test_any_law_is_a_start_and_says_what_clients_can_do(
    sampling, cohort, first_possible
):
    _, by_law = with_best_law(spec_of(sampling=sampling, cohort=cohort))
    _, stated = with_best_law(spec_of(first_possible))
    assert by_law == stated


@pytest.mark.parametrize(
    ("changes", "law", "reason"),
    [
        (
            {"relation": "replace_one"},
            "random_allocation",
            "relation must be add_remove",
        ),
        (
            {"cohort": 20},
            "balls_in_bins",
            "has no turns for 10 rounds and cohorts of 1 in 30",
        ),
        (
            {"rounds": 7},
            "random_allocation",
            "has no turns for 7 rounds and cohorts of 1 in 10",
        ),
        pytest.param(
            {"sampling": "capped_poisson:1000"},
            "poisson",
            "has no cap on cohorts",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_law_without_a_plan_says_which_condition_fails(changes, law, reason):
    _, compared = with_best_law(spec_of(**changes))
    assert reason_by_law(compared)[law] == reason


def test_persons_exclude_all_laws_that_hide_one_client_only():
    groups = [{"name": "a", "clients": 600, "epsilon": 1.0, "contributions": 2}]
    decided, compared = with_best_law(spec_of(groups=groups))
    assert decided.sampling == "poisson"
    reasons = reason_by_law(compared)
    assert reasons["balls_in_bins"] == "groups.a.contributions must be at most 1"


@pytest.mark.parametrize(
    ("planning", "message"),
    [
        ({"free": ["ratios", "sampling"]}, r"planning\.free: sampling needs ratios and weights"),
        ({"free": [*FREE, "cohort"]}, r"planning\.free: sampling cannot be free together with"),
        ({"participation": "clients_choose"}, r"planning\.participation: is only for sampling in"),
    ],
)  # fmt: skip
def test_free_sampling_names_the_condition_that_fails(planning, message):
    with pytest.raises(InputError, match=message):
        spec_of(planning=planning)


@pytest.mark.parametrize("limit", ["min_sampling_ratio", "max_sampling_ratio"])
def test_limits_on_ratios_are_of_one_law(limit):
    groups = [{"name": "a", "clients": 600, "epsilon": 1.0, limit: 0.1}]
    with pytest.raises(InputError, match=f"{limit}: must be left out with sampling"):
        spec_of(groups=groups)


@pytest.mark.slow
def test_noise_of_all_candidates_is_finite():
    _, compared = with_best_law(spec_of())
    assert all(0 < (law.noise or 0) < math.inf for law in compared)
