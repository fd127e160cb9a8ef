"""Forecasts: a known curve, intervals that cover what they say, plans that reach a target."""

import json
from functools import partial

import numpy as np
import pytest

import privplan
from privplan.errors import InputError
from privplan.forecast import features
from privplan.forecast.coverage import Coverage, even_coverage, read_coverage
from privplan.forecast.curve import Point
from privplan.forecast.model import Anchor, Forecaster, with_forecast
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


def overall(model, found):
    return np.array(
        [model.accuracy(run.plan, run.coverage) - run.accuracy for run in found]
    )


def test_forecasts_of_new_plans_are_near_the_curve(model):
    exact = runs(100, seed=7, noise=0.0)
    assert abs(overall(model, exact)).mean() < 0.015
    spread = np.std([run.accuracy for run in exact])
    assert abs(overall(model, exact)).mean() < spread / 4


def test_intervals_cover_new_runs_and_are_no_wider_than_needed(model):
    inside, inside_groups = [], []
    for run in runs(200, seed=8):
        found = model.forecast(run.plan, run.coverage, ["a", "b"])
        inside.append(found.lower <= run.accuracy <= found.upper)
        inside_groups += [
            one.lower <= seen <= one.upper
            for one, seen in zip(found.groups, run.accuracy_by_group, strict=True)
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
    far = features.PlanFeatures(
        **{**run.plan.model_dump(), "rounds": 2000, "clipping_norm": 0.5}
    )
    near_one = model.forecast(run.plan, run.coverage, ["a", "b"])
    far_one = model.forecast(far, run.coverage, ["a", "b"])
    assert far_one.distance > 2 * near_one.distance

    def width(low, high):
        return float(np.log(high / (1 - high)) - np.log(low / (1 - low)))

    assert width(far_one.lower, far_one.upper) > width(near_one.lower, near_one.upper)


def test_another_number_of_groups_is_known_where_all_hold_all_classes_alike(model):
    run = runs(1, seed=10)[0]
    even = Coverage(shares=((0.25,) * 4,) * 3, clients=(0.2, 0.3, 0.5))
    apart = Coverage(
        shares=((1.0, 0, 0, 0), (0, 0.5, 0.5, 0), (0, 0, 0, 1.0)), clients=even.clients
    )
    plan = run.plan.model_copy(update={"weights": (0.3, 0.3, 0.4)})
    two = model.forecast(run.plan, run.coverage, ["a", "b"])
    found = model.forecast(plan, even, ["a", "b", "c"])
    assert (found.lower, found.upper) == pytest.approx((two.lower, two.upper), abs=0.02)
    assert [one.group for one in found.groups] == ["a", "b", "c"]
    far = model.forecast(
        plan, apart, ["a", "b", "c"]
    )  # groups without a counterpart are new
    assert far.distance > found.distance


def test_another_model_is_far(model):
    run = runs(1, seed=10)[0]
    other = run.plan.model_copy(update={"parameters": 1001})
    near, far = (
        model.forecast(one, run.coverage, ["a", "b"]) for one in (run.plan, other)
    )
    assert far.distance > 10
    assert far.upper - far.lower > 2 * (near.upper - near.lower)


def test_an_anchor_moves_forecasts_to_other_data():
    harder = runs(40, seed=11, noise=0.02, shift=-1.0)
    known = harder[0]
    anchored = Forecaster(
        table(), Anchor(Point(known.plan, known.coverage), known.accuracy)
    )
    assert (
        abs(overall(anchored, harder)).mean()
        < abs(overall(Forecaster(table()), harder)).mean()
    )
    assert overall(anchored, harder[:1])[0] == pytest.approx(0, abs=1e-9)


def test_skew_and_holders_of_exclusive_classes():
    held = Coverage(shares=((1.0, 0.0, 0.0), (0.0, 0.5, 0.5)), clients=(0.5, 0.5))
    overall, same = 0.5**2 + 2 * 0.25**2, 0.5 * 1 + 0.5 * 0.5
    assert held.total_skew == pytest.approx((same - overall) / (1 - overall))
    assert held.holders((0.2, 0.8)) == pytest.approx([5.0, 1.25, 1.25])
    even = Coverage(shares=((0.5, 0.5), (0.5, 0.5)), clients=(0.3, 0.7), skew=0.25)
    assert even.total_skew == pytest.approx(0.25)
    assert even.holders((0.1, 0.9)) == pytest.approx([1.0, 1.0])


def test_coverages_that_no_run_has_are_a_category_of_their_own():
    source, found = np.random.default_rng(4), []
    for number, run in enumerate(runs(60, seed=13)):
        if number % 2:  # one of two coverages of its own, with larger errors
            first = source.dirichlet([0.5] * 4)
            held = Coverage(shares=(tuple(first), (0.25,) * 4), clients=(0.5, 0.5))
            odd = float(
                np.clip(run.accuracy + source.choice([-0.25, 0.25]), 0.01, 0.99)
            )
            run = run.model_copy(update={"coverage": held, "accuracy": odd})
        else:
            even = Coverage(shares=((0.25,) * 4,) * 2, clients=(0.5, 0.5))
            run = run.model_copy(update={"coverage": even})
        found.append(run)
    fitted = Forecaster(
        ProxyTable(dataset="made", model="none", classes=4, runs=tuple(found))
    )
    new = Coverage(
        shares=((0.9, 0.1, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)), clients=(0.5, 0.5)
    )
    known = fitted.forecast(found[0].plan, found[0].coverage, ["a", "b"])
    other = fitted.forecast(found[0].plan, new, ["a", "b"])
    assert other.upper - other.lower > 1.3 * (known.upper - known.lower)


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
    said = answer(
        "solve", folder / "spec.yaml", f"--forecast={folder / 'proxy.json'}", "-o", out
    )
    plan, without = Plan.load(out), solve(folder / "spec.yaml", second_opinion=False)
    assert "forecast" not in json.loads(without.to_json())
    assert plan.forecast is not None
    assert plan.model_copy(update={"forecast": None}).digest == without.digest
    assert [one.group for one in plan.forecast.groups] == ["strict", "loose"]
    assert plan.forecast.lower < plan.forecast.accuracy < plan.forecast.upper
    assert "forecast: accuracy" in said
    assert "forecast: accuracy" in answer("explain", out)
    assert "assumes skew 0 of clients' labels" in said
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
        ("epsilon", {}),
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
    spec, model = Spec.parse(data), Forecaster(table(16))
    coverage = even_coverage(spec, 4)
    own = model.accuracy(
        features.plan_features(solve(spec, second_opinion=False)), coverage
    )
    target = 100 * own - 3
    expect = partial(with_forecast, model=model, coverage=coverage)
    plan = solve_for(
        spec, {"accuracy": target}, unknown, forecast=expect, second_opinion=False
    )
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
APART = {"strict": [0.7, 0.1, 0.1, 0.1], "loose": [0.1, 0.3, 0.3, 0.3]}


@pytest.fixture(scope="module")
def two_groups():
    spec = Spec.parse(load_yaml(TEXT, "spec") | {"groups": TWO_GROUPS})
    return solve(spec, second_opinion=False)


def test_an_interval_covers_groups_alike_and_a_strict_group_apart(two_groups, model):
    """Two of four classes are the strict group's alone at the other end."""
    plan = two_groups
    open_ = with_forecast(plan, model, None).forecast
    even = even_coverage(plan.spec, 4)
    shares = ((0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5))
    apart = Coverage(shares=shares, clients=(0.5, 0.5))
    assert open_.accuracy == with_forecast(plan, model, even).forecast.accuracy
    for coverage in (even, apart):
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
    plan = with_forecast(solve(Spec.parse(data), second_opinion=False), model, None)
    assert phrase in forecast_lines(plan)[0]
    assert Plan.parse(json.loads(plan.to_json())).forecast == plan.forecast


def test_coverage_is_a_mapping_in_python_and_a_file_for_the_command(
    two_groups, tmp_path
):
    table().save(tmp_path / "proxy.json")
    (tmp_path / "held.json").write_text(json.dumps(APART))
    proxy = tmp_path / "proxy.json"
    by_mapping = privplan.forecast(two_groups, proxy, coverage=APART)
    assert by_mapping == privplan.forecast(
        two_groups, proxy, coverage=tmp_path / "held.json"
    )
    assert by_mapping.assumes == "the classes that --coverage states for each group"


@pytest.mark.parametrize(
    ("coverage", "fault"),
    [
        ({"strict": [1, 0, 0, 0]}, "coverage: must name the groups strict, loose"),
        (APART | {"loose": [1, 0]}, "coverage.loose: must be 4 numbers"),
        (APART | {"loose": "abcd"}, "coverage.loose: must be 4 numbers"),
        (APART | {"skew": 2}, "coverage.skew: must be a number in"),
        ([1, 2], "coverage: must name the groups strict, loose, found 'list'"),
    ],
)
def test_a_coverage_that_is_none_is_refused(two_groups, coverage, fault):
    with pytest.raises(InputError) as refused:
        read_coverage(coverage, two_groups.spec, 4)
    assert str(refused.value).startswith(fault)
