"""What each group counts under a plan, and under plans that could have been made."""

import numpy as np
import pytest

from privplan.planning.alternatives import alternatives, attention_lines
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

SIZES = {"strict": (500, 0.3), "medium": (2500, 2.0), "loose": (3000, 8.0)}


def spec(sizes=SIZES, **changes):
    groups = [
        {"name": name, "clients": clients, "epsilon": epsilon}
        for name, (clients, epsilon) in sizes.items()
    ]
    data = {
        "name": "fair",
        "groups": groups,
        "delta": "n^-1.1",
        "rounds": 50,
        "cohort": 120,
        "model": {"name": "cnn-2-valid", "parameters": 18378},
    }
    return Spec.parse({**data, **changes})


def counts(plan):
    return [group.weight * 6000 / group.clients for group in plan.groups]


@pytest.mark.parametrize("ratios", ["balanced", "noise"])
@pytest.mark.parametrize("release", ["joint", "per_group"])
@pytest.mark.parametrize(
    "share", [None, pytest.param(0.5, marks=pytest.mark.slow), 1.0]
)
def test_every_group_counts_its_share(ratios, release, share):
    """0.85 where nothing is said; all weights at 1 are the shares of the clients."""
    plan = solve(
        spec(planning={"ratios": ratios, "release": release, "least_share": share})
    )
    floor = 0.85 if share is None else share
    assert min(counts(plan)) >= floor - 1e-6
    assert min(counts(plan)) == pytest.approx(floor, abs=1e-4)


def test_a_least_weight_of_its_own_goes_before_the_share_of_others():
    """0.6 for the strict group leaves the others 0.4, shared by their clients."""
    data = spec().model_dump(mode="json")
    data["groups"][0]["min_weight"] = 0.6
    plan = solve(Spec.parse(data))
    assert attention_lines(plan)[0].endswith(
        "planning.least_share 0.85 comes after min_weight"
    )
    assert [group.weight for group in plan.groups] == pytest.approx(
        [0.6, 10 / 55, 12 / 55], rel=1e-6
    )


def test_three_plans_stand_side_by_side():
    """Their noise is that of the plans which these specs have."""
    plan = solve(spec(planning={"slack": 0}))
    alike, chosen, even = alternatives(plan)
    assert chosen.counts == pytest.approx(counts(plan))
    assert chosen.noise == relative_noise(plan)
    assert even.counts == pytest.approx([1, 1, 1])
    free_plan = solve(spec(planning={"least_share": 0.0, "slack": 0}))
    assert alike.noise == pytest.approx(relative_noise(free_plan), rel=2e-3)
    assert alike.counts == pytest.approx(counts(free_plan), rel=1e-2)
    strictest_budgets = {name: (clients, 0.3) for name, (clients, _) in SIZES.items()}
    even_plan = solve(spec(strictest_budgets, planning={"slack": 0}))
    assert even.noise == pytest.approx(relative_noise(even_plan), rel=2e-3)
    assert alike.noise < chosen.noise < even.noise
    assert not attention_lines(plan)


def test_nothing_is_compared_where_nothing_was_chosen():
    for unchosen in (
        spec({name: (clients, 1.0) for name, (clients, _) in SIZES.items()}),
        spec(planning={"weights": "population", "slack": 0}),
        spec(planning={"ratios": "uniform"}),
    ):
        assert alternatives(solve(unchosen)) == ()


def test_a_plan_says_where_noise_drowns_the_signal_and_what_helps():
    """A quarter of the parameters halves the noise; three remedies are named."""
    large = {"name": "own", "parameters": 3_000_000}
    plan = solve(
        spec(model=large, planning={"least_share": 0.0, "release": "per_group"})
    )
    few, loud = attention_lines(plan)
    assert few.startswith(
        "strict, medium: 50.0% of the clients have 0.00% of the weight"
    )
    noise = relative_noise(plan)
    assert loud.startswith(f"noise is {noise:.3g} times the clipping norm")
    remedies = [
        float(remedy.split(" with ")[0]) for remedy in loud.split(": ")[1].split(", ")
    ]
    assert f"{noise / 2:.3g} with a model of a quarter of the parameters" in loud
    assert len(remedies) == 3
    assert np.all(np.diff(remedies) >= 0)
    assert remedies[-1] < noise
