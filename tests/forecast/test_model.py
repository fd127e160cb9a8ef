"""Forecasts recover a known curve, and their intervals cover what they say."""

from __future__ import annotations

import numpy as np
import pytest

from privplan.forecast.features import Coverage, PlanFeatures, ProxyRun, ProxyTable
from privplan.forecast.model import Anchor, Forecaster, Point
from tests.forecast.table import runs, table


@pytest.fixture(scope="module")
def model() -> Forecaster:
    return Forecaster(table())


def overall(model: Forecaster, found: tuple[ProxyRun, ...]) -> np.ndarray:
    return np.array([model.accuracy(run.plan, run.coverage) - run.accuracy for run in found])


def test_forecasts_of_new_plans_are_near_the_curve(model: Forecaster) -> None:
    exact = runs(100, seed=7, noise=0.0)
    assert abs(overall(model, exact)).mean() < 0.015
    spread = np.std([run.accuracy for run in exact])
    assert abs(overall(model, exact)).mean() < spread / 4


def test_intervals_cover_new_runs_and_are_no_wider_than_needed(model: Forecaster) -> None:
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


def test_accuracy_falls_with_noise_and_rises_with_rounds(model: Forecaster) -> None:
    run = runs(1, seed=9)[0]

    def with_(**changes: float) -> float:
        plan = PlanFeatures(**{**run.plan.model_dump(), **changes})
        return model.accuracy(plan, run.coverage)

    by_noise = [with_(noise=value) for value in (0.1, 0.5, 1, 3, 10)]
    assert by_noise == sorted(by_noise, reverse=True)
    by_rounds = [with_(rounds=value) for value in (5, 20, 60, 200)]
    assert by_rounds == sorted(by_rounds)


def test_intervals_are_wider_far_from_the_proxy_runs(model: Forecaster) -> None:
    run = runs(1, seed=10)[0]
    far = PlanFeatures(**{**run.plan.model_dump(), "rounds": 2000, "clipping_norm": 0.5})
    near_one = model.forecast(run.plan, run.coverage, ["a", "b"])
    far_one = model.forecast(far, run.coverage, ["a", "b"])
    assert far_one.distance > 2 * near_one.distance

    def width(low: float, high: float) -> float:
        return float(np.log(high / (1 - high)) - np.log(low / (1 - low)))

    assert width(far_one.lower, far_one.upper) > width(near_one.lower, near_one.upper)


def test_an_anchor_moves_forecasts_to_other_data() -> None:
    harder = runs(40, seed=11, noise=0.02, shift=-1.0)
    known = harder[0]
    anchored = Forecaster(table(), Anchor(Point(known.plan, known.coverage), known.accuracy))
    assert abs(overall(anchored, harder)).mean() < abs(overall(Forecaster(table()), harder)).mean()
    assert overall(anchored, harder[:1])[0] == pytest.approx(0, abs=1e-9)


def test_skew_and_holders_of_exclusive_classes() -> None:
    held = Coverage(shares=((1.0, 0.0, 0.0), (0.0, 0.5, 0.5)), clients=(0.5, 0.5))
    overall, same = 0.5**2 + 2 * 0.25**2, 0.5 * 1 + 0.5 * 0.5
    assert held.total_skew == pytest.approx((same - overall) / (1 - overall))
    assert held.holders((0.2, 0.8)) == pytest.approx([5.0, 1.25, 1.25])
    even = Coverage(shares=((0.5, 0.5), (0.5, 0.5)), clients=(0.3, 0.7), skew=0.25)
    assert even.total_skew == pytest.approx(0.25)
    assert even.holders((0.1, 0.9)) == pytest.approx([1.0, 1.0])


def test_coverages_that_no_run_has_are_a_category_of_their_own() -> None:
    source, found = np.random.default_rng(4), []
    for number, run in enumerate(runs(60, seed=13)):
        if number % 2:  # one of two coverages of its own, with larger errors
            first = source.dirichlet([0.5] * 4)
            held = Coverage(shares=(tuple(first), (0.25,) * 4), clients=(0.5, 0.5))
            odd = float(np.clip(run.accuracy + source.choice([-0.25, 0.25]), 0.01, 0.99))
            run = run.model_copy(update={"coverage": held, "accuracy": odd})
        else:
            even = Coverage(shares=((0.25,) * 4,) * 2, clients=(0.5, 0.5))
            run = run.model_copy(update={"coverage": even})
        found.append(run)
    fitted = Forecaster(ProxyTable(dataset="made", model="none", classes=4, runs=tuple(found)))
    new = Coverage(shares=((0.9, 0.1, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)), clients=(0.5, 0.5))
    known = fitted.forecast(found[0].plan, found[0].coverage, ["a", "b"])
    other = fitted.forecast(found[0].plan, new, ["a", "b"])
    assert other.upper - other.lower > 1.5 * (known.upper - known.lower)
