"""Forecasts: a known curve, intervals that cover, and plans that reach a target."""

import json
from functools import partial

import numpy as np
import pytest

import privplan
from privplan.errors import InputError
from privplan.forecast import features
from privplan.forecast.coverage import Coverage, even_coverage, read_coverage
from privplan.forecast.curve import Point
from privplan.forecast.model import (
    Anchor,
    Forecaster,
    forecaster_with,
    with_forecast,
)
from privplan.forecast.proxy_table import ProxyTable
from privplan.forecast.target import forecast_lines, reached_line
from privplan.plan import Plan
from privplan.planning.inverse import solve_for
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from tests.command import answer
from tests.forecast.table import runs, table


@pytest.fixture(scope="module")
def model():
    return Forecaster(table())


def errors_of(model, proxy_runs):
    return np.array(
        [model.accuracy(run.plan, run.coverage) - run.accuracy for run in proxy_runs]
    )


def test_forecasts_of_new_plans_are_near_the_curve(model):
    exact = runs(100, seed=7, noise=0.0)
    assert abs(errors_of(model, exact)).mean() < 0.015
    spread = np.std([run.accuracy for run in exact])
    assert abs(errors_of(model, exact)).mean() < spread / 4


def test_intervals_cover_new_runs_and_are_no_wider_than_needed(model):
    inside = []
    inside_groups = []
    for run in runs(200, seed=8):
        forecast = model.forecast(run.plan, run.coverage, ["a", "b"])
        inside.append(forecast.lower <= run.accuracy <= forecast.upper)
        inside_groups += [
            interval.lower <= seen <= interval.upper
            for interval, seen in zip(
                forecast.groups, run.accuracy_by_group, strict=True
            )
        ]
    assert 0.82 <= np.mean(inside) <= 0.99
    assert 0.82 <= np.mean(inside_groups) <= 0.99


def test_accuracy_falls_with_noise_and_rises_with_rounds(model):
    run = runs(1, seed=9)[0]

    def with_(**changes):
        plan = features.PlanFeatures(**{**run.plan.model_dump(), **changes})
        return model.accuracy(plan, run.coverage)

    by_noise = [with_(noise=value) for value in (0.1, 0.5, 1, 3, 10)]
    assert by_noise == sorted(by_noise, reverse=True)
    by_rounds = [with_(rounds=value) for value in (5, 20, 60, 200)]
    assert by_rounds == sorted(by_rounds)


def test_intervals_are_wider_far_from_the_proxy_runs(model):
    run = runs(1, seed=10)[0]
    changes = {"rounds": 2000, "clipping_norm": 0.5}
    far_plan = features.PlanFeatures(**{**run.plan.model_dump(), **changes})
    near = model.forecast(run.plan, run.coverage, ["a", "b"])
    distant = model.forecast(far_plan, run.coverage, ["a", "b"])
    assert distant.distance > 2 * near.distance

    def width(low, high):
        return float(np.log(high / (1 - high)) - np.log(low / (1 - low)))

    assert width(distant.lower, distant.upper) > width(near.lower, near.upper)


def test_another_number_of_groups_is_known_where_all_hold_all_classes_alike(model):
    run = runs(1, seed=10)[0]
    even = Coverage(shares=((0.25,) * 4,) * 3, clients=(0.2, 0.3, 0.5))
    exclusive = Coverage(
        shares=((1.0, 0, 0, 0), (0, 0.5, 0.5, 0), (0, 0, 0, 1.0)), clients=even.clients
    )
    plan = run.plan.model_copy(update={"weights": (0.3, 0.3, 0.4)})
    two = model.forecast(run.plan, run.coverage, ["a", "b"])
    even_forecast = model.forecast(plan, even, ["a", "b", "c"])
    assert (even_forecast.lower, even_forecast.upper) == pytest.approx(
        (two.lower, two.upper), abs=0.02
    )
    assert [group.group for group in even_forecast.groups] == ["a", "b", "c"]
    # Groups without a counterpart are new.
    exclusive_forecast = model.forecast(plan, exclusive, ["a", "b", "c"])
    assert exclusive_forecast.distance > even_forecast.distance


def test_another_model_is_far(model):
    run = runs(1, seed=10)[0]
    larger_model = run.plan.model_copy(update={"parameters": 1001})
    near = model.forecast(run.plan, run.coverage, ["a", "b"])
    distant = model.forecast(larger_model, run.coverage, ["a", "b"])
    assert distant.distance > 10
    assert distant.upper - distant.lower > 2 * (near.upper - near.lower)


def test_an_anchor_moves_forecasts_to_other_data():
    harder = runs(40, seed=11, noise=0.02, shift=-1.0)
    anchor_run = harder[0]
    anchored = Forecaster(
        table(),
        Anchor(Point(anchor_run.plan, anchor_run.coverage), anchor_run.accuracy),
    )
    assert (
        abs(errors_of(anchored, harder)).mean()
        < abs(errors_of(Forecaster(table()), harder)).mean()
    )
    assert errors_of(anchored, harder[:1])[0] == pytest.approx(0, abs=1e-9)


def test_skew_and_holders_of_exclusive_classes():
    coverage = Coverage(shares=((1.0, 0.0, 0.0), (0.0, 0.5, 0.5)), clients=(0.5, 0.5))
    any_two = 0.5**2 + 2 * 0.25**2
    two_of_a_client = 0.5 * 1 + 0.5 * 0.5
    assert coverage.total_skew == pytest.approx(
        (two_of_a_client - any_two) / (1 - any_two)
    )
    assert coverage.holders((0.2, 0.8)) == pytest.approx([5.0, 1.25, 1.25])
    even = Coverage(shares=((0.5, 0.5), (0.5, 0.5)), clients=(0.3, 0.7), skew=0.25)
    assert even.total_skew == pytest.approx(0.25)
    assert even.holders((0.1, 0.9)) == pytest.approx([1.0, 1.0])


def test_coverages_that_no_run_has_are_a_category_of_their_own():
    source = np.random.default_rng(4)
    proxy_runs = []
    for number, run in enumerate(runs(60, seed=13)):
        # Every other run has a coverage that no other has, with larger errors.
        if number % 2:
            shares = source.dirichlet([0.5] * 4)
            coverage = Coverage(shares=(tuple(shares), (0.25,) * 4), clients=(0.5, 0.5))
            odd = float(
                np.clip(run.accuracy + source.choice([-0.25, 0.25]), 0.01, 0.99)
            )
            run = run.model_copy(update={"coverage": coverage, "accuracy": odd})
        else:
            even = Coverage(shares=((0.25,) * 4,) * 2, clients=(0.5, 0.5))
            run = run.model_copy(update={"coverage": even})
        proxy_runs.append(run)
    fitted = Forecaster(
        ProxyTable(dataset="made", model="none", classes=4, runs=tuple(proxy_runs))
    )
    new = Coverage(
        shares=((0.9, 0.1, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)), clients=(0.5, 0.5)
    )
    usual = fitted.forecast(proxy_runs[0].plan, proxy_runs[0].coverage, ["a", "b"])
    unusual = fitted.forecast(proxy_runs[0].plan, new, ["a", "b"])
    assert unusual.upper - unusual.lower > 1.3 * (usual.upper - usual.lower)


TEXT = """
name: small
groups:
  - {name: strict, clients: 500, epsilon: 1.0}
  - {name: loose, clients: 500, epsilon: 4.0}
rounds: 40
cohort: 100
local: {steps: 2, learning_rate: 0.1}
model: {name: own, parameters: 1000}
planning: {accountant: rdp}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spec.yaml").write_text(TEXT)
    table(16).save(tmp_path / "proxy.json")
    return tmp_path


def test_a_plan_keeps_its_forecast_and_without_one_its_digest(folder):
    out = folder / "plan.json"
    printed = answer(
        "solve", folder / "spec.yaml", f"--forecast={folder / 'proxy.json'}", "-o", out
    )
    plan = Plan.load(out)
    plain_plan = solve(folder / "spec.yaml")
    assert "forecast" not in json.loads(plain_plan.to_json())
    assert plan.forecast is not None
    assert plan.model_copy(update={"forecast": None}).digest == plain_plan.digest
    assert [group.group for group in plan.forecast.groups] == ["strict", "loose"]
    assert plan.forecast.lower < plan.forecast.accuracy < plan.forecast.upper
    assert "forecast: accuracy" in printed
    assert "forecast: accuracy" in answer("explain", out)
    assert "assumes skew 0 of clients' labels" in printed
    line = reached_line(plan, plan.forecast.upper + 0.01, "made")
    assert "OUTSIDE the interval" in line


def test_a_forecast_takes_the_skew_of_the_proxy(folder):
    plain = table(16)
    skewed = [
        run.model_copy(
            update={"coverage": run.coverage.model_copy(update={"skew": 0.25})}
        )
        for run in plain.runs
    ]
    spec = Spec.parse(load_yaml(TEXT, "spec"))
    proxy = plain.model_copy(update={"runs": tuple(skewed)})
    assert proxy.skew == 0.25
    shares = {"strict": [1, 1, 1, 1], "loose": [1, 1, 1, 1]}
    assert read_coverage(None, spec, 4, proxy.skew) is None
    assert read_coverage(shares, spec, 4).skew == 0
    assert read_coverage(shares, spec, 4, proxy.skew).skew == 0.25
    stated = folder / "coverage.json"
    stated.write_text('{"strict": [1, 1, 1, 1], "loose": [1, 1, 1, 1], "skew": 0.1}')
    assert read_coverage(stated, spec, 4, proxy.skew).skew == 0.1


@pytest.mark.parametrize(
    ("unknown", "changes"),
    [
        pytest.param("epsilon", {}, marks=pytest.mark.slow),
        ("cohort", {}),
        pytest.param(
            "epsilon",
            {"sampling": "cyclic_poisson:4", "planning": {"accountant": "pld"}},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_least_budget_or_cohort_reaches_the_target(unknown, changes):
    data = load_yaml(TEXT, "spec") | changes
    spec = Spec.parse(data)
    model = Forecaster(table(16))
    coverage = even_coverage(spec, 4)
    own_accuracy = model.accuracy(features.plan_features(solve(spec)), coverage)
    target = 100 * own_accuracy - 3
    expect = partial(with_forecast, model=model, coverage=coverage)
    plan = solve_for(spec, {"accuracy": target}, unknown, forecast=expect)
    assert plan.forecast.accuracy == pytest.approx(target / 100, abs=0.002)
    if unknown == "epsilon":
        assert plan.spec.groups[0].epsilon < spec.groups[0].epsilon
    else:
        assert plan.spec.expected_cohort < spec.expected_cohort
    assert f"for: accuracy={target:g} asks for {unknown}" in plan.warnings[0]


TWO_GROUPS = [
    {"name": "strict", "clients": 50, "epsilon": 2.0},
    {"name": "loose", "clients": 50, "epsilon": 8.0},
]
EXCLUSIVE = {"strict": [0.7, 0.1, 0.1, 0.1], "loose": [0.1, 0.3, 0.3, 0.3]}


@pytest.fixture(scope="module")
def two_groups():
    spec = Spec.parse(load_yaml(TEXT, "spec") | {"groups": TWO_GROUPS})
    return solve(spec)


def test_an_interval_covers_groups_alike_and_a_strict_group_apart(two_groups, model):
    """Two of four classes are the strict group's alone at the other end."""
    plan = two_groups
    open_ = with_forecast(plan, model, None).forecast
    even = even_coverage(plan.spec, 4)
    shares = ((0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5))
    exclusive = Coverage(shares=shares, clients=(0.5, 0.5))
    assert open_.accuracy == with_forecast(plan, model, even).forecast.accuracy
    for coverage in (even, exclusive):
        stated = with_forecast(plan, model, coverage).forecast
        assert open_.lower <= stated.lower < stated.upper <= open_.upper
        for wide, group in zip(open_.groups, stated.groups, strict=True):
            assert wide.lower <= group.lower < group.upper <= wide.upper


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({}, "the interval also covers that strict alone holds some"),
        ({"planning": {"least_share": 0}}, "hold all classes alike, as the spec says"),
    ],
)
def test_a_forecast_states_what_it_assumes(model, changes, phrase):
    data = load_yaml(TEXT, "spec") | {"groups": TWO_GROUPS} | changes
    plan = with_forecast(solve(Spec.parse(data)), model, None)
    assert phrase in forecast_lines(plan)[0]
    assert Plan.parse(json.loads(plan.to_json())).forecast == plan.forecast


def test_coverage_is_a_mapping_in_python_and_a_file_for_the_command(
    two_groups, tmp_path
):
    table().save(tmp_path / "proxy.json")
    (tmp_path / "held.json").write_text(json.dumps(EXCLUSIVE))
    proxy = tmp_path / "proxy.json"
    by_mapping = privplan.forecast(two_groups, proxy, coverage=EXCLUSIVE)
    assert by_mapping == privplan.forecast(
        two_groups, proxy, coverage=tmp_path / "held.json"
    )
    assert by_mapping.assumes == "the classes that --coverage states for each group"


@pytest.mark.parametrize(
    ("coverage", "fault"),
    [
        ({"strict": [1, 0, 0, 0]}, "coverage: must name the groups strict, loose"),
        (EXCLUSIVE | {"loose": [1, 0]}, "coverage.loose: must be 4 numbers"),
        (EXCLUSIVE | {"loose": "abcd"}, "coverage.loose: must be 4 numbers"),
        (EXCLUSIVE | {"skew": 2}, "coverage.skew: must be a number in"),
        ([1, 2], "coverage: must name the groups strict, loose, found 'list'"),
    ],
)
def test_a_coverage_that_is_none_is_refused(two_groups, coverage, fault):
    with pytest.raises(InputError) as refused:
        read_coverage(coverage, two_groups.spec, 4)
    assert str(refused.value).startswith(fault)


def test_a_known_accuracy_is_no_share():
    with pytest.raises(InputError, match="a percentage from 1 to below 100"):
        forecaster_with("proxy.json", "plan.json=0.8", None)
