"""Limits of the groups: kept by plans, and named with the nearest value when they cannot hold."""

from typing import Any

import pytest

from privplan.errors import InfeasibleError
from privplan.planning.noise import least_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import make_problem, make_spec, members


def groups(**first: Any) -> list[dict[str, Any]]:
    return [members("strict", 200, 1.0, **first), members("loose", 300, 4.0)]


@pytest.mark.parametrize("release", ["joint", "per_group"])
def test_limits_hold(release: str) -> None:
    first = {"min_sampling_ratio": 0.08, "max_sampling_ratio": 0.12, "min_weight": 0.35}
    planning = {"accountant": "rdp", "ratios": "noise", "release": release}
    plan = solve(make_spec(groups=groups(**first), planning=planning))
    assert 0.08 * (1 - 1e-9) <= plan.groups[0].sampling_ratio <= 0.12 * (1 + 1e-9)
    assert plan.groups[0].weight >= 0.35 - 1e-6


def floors_of(first: float, second: float | None, **planning: Any) -> Spec:
    groups: list[dict[str, Any]] = [
        members("strict", 200, 1.0, min_weight=first),
        members("middle", 200, 2.0, min_weight=second),
        members("loose", 300, 4.0),
    ]
    return make_spec(groups=groups, planning={"ratios": "balanced", **planning})


@pytest.mark.parametrize("ratios", ["balanced", "noise"])
def test_least_weights_that_leave_nothing_to_a_group_of_one_sum(ratios: str) -> None:
    with pytest.raises(InfeasibleError, match=r"groups.strict.min_weight: .*middle.* found 1 "):
        solve(floors_of(1.0, None, ratios=ratios))
    with pytest.raises(InfeasibleError, match=r"groups.\*.min_weight: .*loose.* found 1 "):
        solve(floors_of(0.4, 0.6, ratios=ratios))


def test_a_group_without_weight_has_a_sum_of_its_own() -> None:
    plan = solve(floors_of(1.0, None, release="per_group"))
    assert [group.weight for group in plan.groups] == pytest.approx([1, 0, 0], abs=1e-9)


def test_one_sum_gives_each_group_the_noise_that_it_really_faces() -> None:
    """A floor that lifts a weight makes the other groups face more noise than they need."""
    plan = solve(
        make_spec(groups=groups(min_weight=0.6), planning={"accountant": "rdp", "ratios": "noise"})
    )
    stds = [g.noise_multiplier * g.scale for g in plan.groups]
    assert stds[0] == pytest.approx(stds[1], rel=1e-12)
    shares = [g.expected_cohort * g.scale for g in plan.groups]
    assert plan.groups[0].weight == pytest.approx(shares[0] / sum(shares), rel=1e-9)
    assert plan.mean_noise_std == pytest.approx(stds[0] / sum(shares), rel=1e-9)


def test_dropouts_are_provisioned_for() -> None:
    plain = solve(make_spec(planning={"accountant": "rdp", "ratios": "noise"}))
    tolerant = solve(
        make_spec(planning={"accountant": "rdp", "ratios": "noise", "dropout_tolerance": 0.2})
    )
    assert tolerant.mean_noise_std == pytest.approx(plain.mean_noise_std / 0.8**0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("planning", "said"),
    [
        ({"max_uploads": 100}, "planning.max_uploads: 100 is below the 500 uploads of 10 rounds"),
        ({"max_rounds": 5}, "planning.max_rounds: 5 is below the 10 rounds"),
        (
            {"free": ["ratios", "weights", "cohort"], "max_uploads": 15},
            "planning.max_uploads: 15 is below the 20 uploads of 10 rounds with 2 clients",
        ),
    ],
)
def test_caps_that_cannot_hold_are_named_with_the_nearest(
    planning: dict[str, object], said: str
) -> None:
    spec = make_spec(planning={"accountant": "rdp", "ratios": "balanced", **planning})
    with pytest.raises(InfeasibleError, match="nearest feasible") as caught:
        solve(spec, second_opinion=False)
    assert said in str(caught.value)


def test_a_budget_that_no_noise_meets_names_the_nearest_epsilon() -> None:
    """The nearest epsilon can be met, a little less cannot."""
    problem = make_problem(epsilons=(1e-6, 2.0, 4.0), deltas=(1e-9,) * 3)
    with pytest.raises(InfeasibleError) as caught:
        least_noise(problem, 0, 0.3, "rdp")
    nearest = float(str(caught.value).rsplit(" ", 1)[1])
    met = make_problem(epsilons=(nearest * 1.01, 2.0, 4.0), deltas=(1e-9,) * 3)
    assert least_noise(met, 0, 0.3, "rdp") <= 1e4
    short = make_problem(epsilons=(nearest * 0.99, 2.0, 4.0), deltas=(1e-9,) * 3)
    with pytest.raises(InfeasibleError, match="nearest feasible epsilon"):
        least_noise(short, 0, 0.3, "rdp")
