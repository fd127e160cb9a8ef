"""Groups that no weight can help have no floor, unless they state one."""

import pytest

from privplan.accounting.audibility import AUDIBLE, CLEAR, audibility
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from privplan.planning.alternatives import attention_lines
from privplan.planning.floors import floor_lines, floor_prices
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec


def planned(*sizes, floor=None, **changes):
    groups = [
        {"name": f"g{index}", "clients": clients, "epsilon": epsilon}
        for index, (clients, epsilon) in enumerate(sizes)
    ]
    if floor is not None:
        groups[0]["least_share"] = floor
    data = {
        "name": "audible",
        "groups": groups,
        "delta": "n^-1.1",
        "rounds": 50,
        "cohort": 120,
        "model": {"name": "own", "parameters": 18378},
    }
    return solve(Spec.parse({**data, **changes}))


def counts(plan):
    return [
        group.weight * plan.spec.population / group.clients for group in plan.groups
    ]


def test_audibility_is_that_of_the_whole_group():
    """Of N clients with mu: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) = delta."""
    from scipy.stats import norm

    epsilon = 1.0
    mu = audibility(1, epsilon, 1e-5)
    delta = norm.cdf(mu / 2 - epsilon / mu)
    delta -= 2.718281828459045**epsilon * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert audibility(50, epsilon, 1e-5) == pytest.approx(50 * mu)
    assert audibility(50, epsilon, 1e-5, contributions=5) == pytest.approx(10 * mu)


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_ten_clients_do_not_veto_everybody(epsilon):
    """The noise was 12 and 2.5 times that of the others alone."""
    alone = planned((5990, 8.0))
    plan = planned((10, epsilon), (5990, 8.0))
    assert relative_noise(plan) <= 1.1 * relative_noise(alone)
    assert plan.groups[0].audibility < AUDIBLE
    (sentence,) = floor_lines(plan)
    assert sentence.startswith("g0: all 10 together are ")
    assert "no weight can make the model learn what only they have" in sentence
    assert sentence.endswith("it has no floor and counts as the objective says")
    assert not attention_lines(plan)


def test_a_group_that_states_its_floor_has_it():
    """And the plan says what that costs, and what would cost less."""
    plan = planned((10, 0.3), (5990, 8.0), floor=0.85)
    assert counts(plan)[0] == pytest.approx(0.85, rel=1e-4)
    (price,) = floor_prices(plan)
    free = planned((10, 0.3), (5990, 8.0))
    ratio = relative_noise(plan) / relative_noise(free)
    assert price.factor == pytest.approx(ratio, rel=0.02)
    assert [change for change, _ in price.remedies] == [
        "epsilon 0.6 for g0",
        "g0 merged into g1 (epsilon 8)",
        "groups.g0.least_share 0.5",
        "g0 left out",
    ]
    looser = planned((10, 0.6), (5990, 8.0), floor=0.85)
    noise = dict(price.remedies)["epsilon 0.6 for g0"]
    assert noise == pytest.approx(relative_noise(looser), rel=0.02)


def test_a_stored_plan_without_a_stated_floor_is_refused():
    plan = planned((10, 0.3), (5990, 8.0), floor=0.85)
    data = plan.model_dump(mode="json")
    data["groups"][0]["weight"] /= 2
    with pytest.raises(
        InputError, match=r"groups.g0.weight: must be 0.0014\d+ or more"
    ):
        Plan.of_content(data)


def test_a_share_that_is_stated_for_all_holds_for_all():
    plan = planned((10, 0.3), (5990, 8.0), planning={"least_share": 0.5})
    assert counts(plan)[0] == pytest.approx(0.5, rel=1e-4)


def test_a_faint_group_keeps_its_floor_and_is_told():
    plan = planned((300, 0.5), (5700, 8.0))
    assert AUDIBLE < plan.groups[0].audibility < CLEAR
    assert min(counts(plan)) == pytest.approx(0.85, rel=1e-4)
    price, faint = floor_lines(plan)
    assert price.startswith("g0 counts at least 85% of its clients' number: ")
    assert faint.startswith("g0: all 300 together are faint (N mu 49")


def test_floors_of_groups_sum_to_one_at_most():
    groups = [
        {"name": "a", "clients": 3000, "epsilon": 1.0, "least_share": 1.0},
        {"name": "b", "clients": 3000, "epsilon": 8.0, "min_weight": 0.6},
    ]
    with pytest.raises(InfeasibleError, match=r"the least weights sum to 1\.1"):
        planned(groups=groups)
