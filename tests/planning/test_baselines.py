"""Plans that vary by round or protect records: their history, their rounds, their JSON."""

import json
from typing import Any

import pytest

from privplan.accounting.release import History, Release
from privplan.errors import InputError
from privplan.plan import Plan, Segment
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec, spec_data


def plan_with(**changes: Any) -> Plan:
    """The small plan, its first group changed."""
    plan = solve(make_spec(), second_opinion=False)
    first = plan.groups[0].model_copy(update=changes)
    fields = {name: getattr(plan, name) for name in type(plan).model_fields}
    return Plan(**{**fields, "groups": (first, *plan.groups[1:])})


def segments(*rounds: int) -> tuple[Segment, ...]:
    return tuple(
        Segment(rounds=count, sampling_ratio=0.1 * (m + 1), noise_multiplier=2.0)
        for m, count in enumerate(rounds)
    )


def test_segments_are_the_history_and_the_rounds() -> None:
    plan = plan_with(segments=segments(4, 6))
    group = plan.groups[0]
    assert plan.history(group) == History([(Release(2.0, 0.1), 4), (Release(2.0, 0.2), 6)])
    assert [plan.at_round(group, r)[0] for r in (1, 4, 5, 10)] == [0.1, 0.1, 0.2, 0.2]
    assert Plan.parse(json.loads(plan.to_json())) == plan
    for outside in (0, 11):
        with pytest.raises(InputError, match="round: must be in"):
            plan.at_round(group, outside)


def test_equal_segments_are_one() -> None:
    group = plan_with().groups[0]
    same = Segment(
        rounds=5, sampling_ratio=group.sampling_ratio, noise_multiplier=group.noise_multiplier
    )
    split = plan_with(segments=(same, same))
    assert split.history(split.groups[0]) == plan_with().history(group)


def test_segments_must_cover_the_rounds() -> None:
    with pytest.raises(InputError, match=r"segments: must cover the 10 rounds, found 9"):
        plan_with(segments=segments(4, 5))


def test_a_plan_of_clients_has_no_records() -> None:
    with pytest.raises(InputError, match=r"groups\.strict\.records: is only with unit: record"):
        plan_with(records=100)


def test_the_bound_is_the_groups_own_and_scaled() -> None:
    plan = plan_with(clipping_norm=0.5, scale=0.25)
    assert plan.clip_bound(plan.groups[0]) == 0.125
    assert plan.clip_bound(plan.groups[1]) == plan.spec.clipping_norm * plan.groups[1].scale


def test_the_law_of_delta_counts_what_a_budget_protects() -> None:
    data = spec_data(unit="record", delta="n^-1.1", planning={})
    for group, records in zip(data["groups"], (100, 1000), strict=True):
        group["records"] = records
    spec = Spec.parse(data)
    deltas = [spec.delta_of(group) for group in spec.groups]
    assert deltas == pytest.approx([100**-1.1, 1000**-1.1])
    assert spec.weighting == "inverse_variance"
