"""Inverse question: the least epsilons, cohort or rounds whose forecast reaches an accuracy."""

from __future__ import annotations

import math
from dataclasses import replace

from privplan.errors import InfeasibleError, InputError
from privplan.forecast.features import Coverage, features_of
from privplan.forecast.model import Forecaster, with_forecast
from privplan.plan import Forecast, GroupForecast, Plan
from privplan.planning.inverse import noise_and_weights, unknown_of
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

_RANGE = 64.0
"""Largest factor between the unknown and its value in the spec, in either direction."""


def forecast_accuracy(spec: Spec, model: Forecaster, coverage: Coverage) -> float:
    """Forecast of a spec's plan before certification: accuracy in [0, 1]."""
    noise, weights = noise_and_weights(spec)
    left = noise / spec.clipping_norm * spec.noise_left
    return model.accuracy(features_of(spec, left, weights), coverage)


def solve_for_accuracy(
    spec: Spec,
    target: float,
    model: Forecaster,
    coverage: Coverage,
    unknown: str = "epsilon",
    *,
    second_opinion: bool | None = None,
) -> Plan:
    """The plan of least cost whose forecast reaches an accuracy, with its forecast."""
    if not 0 < target < 100:
        raise InputError.one("target_accuracy", "must be in (0, 100) percent", target)
    values = unknown_of(spec, unknown, "target_accuracy")
    near = (values.own - math.log(_RANGE), values.own + math.log(_RANGE))
    values = replace(values, low=max(values.low, near[0]), high=min(values.high, near[1]))

    def error(changed: Spec) -> float:
        return 1 - forecast_accuracy(changed, model, coverage)

    goal = 1 - target / 100
    argument = values.cheapest(error, goal)
    if argument is None:  # the forecast may be largest in the middle
        best, least = replace(values, rises=False).least(error)
        if least > goal:
            raise InfeasibleError(
                f"target_accuracy: {target:g} cannot be reached by {unknown}; the largest forecast "
                f"is {1 - least:.1%}, at {values.shown(best)}"
            )
        argument = replace(values, low=best, own=best).cheapest(error, goal) or best
    plan = solve(values.at(argument), second_opinion=second_opinion)
    note = f"target_accuracy: {target:g} asks for {values.shown(argument)} by the forecast"
    if argument >= values.high:
        note += ", the least that is tried"
    plan = with_forecast(plan, model, coverage)
    return plan.model_copy(update={"warnings": (note, *plan.warnings)})


# --- Forecasts of plans as lines of text, and beside what was reached. ---------------------------

GUESS = "a guess: no run on this data set"
"""What a forecast is without a run on the data that it is of: its interval covers nothing."""
WIDE = 0.12
"""Width of an interval from which a line says that the forecast is wide."""
FAR = 4.0
"""Distance, over the median of the proxy runs, from which a forecast is said to extrapolate."""


def forecast_lines(plan: Plan) -> list[str]:
    """The forecast of a plan, or that it has none, one line each; empty for plans of records."""
    found = plan.forecast
    if plan.unit != "client":
        return []
    if found is None:
        return ["forecast: none, there are no proxy runs (privplan proxy forecast)"]
    basis = f"{found.runs} runs on {found.dataset}"
    basis += ", anchored" if found.anchored else f"; on other data {GUESS}"
    groups = ", ".join(f"{one.group} {_line_shown(one)}" for one in found.groups)
    lines = [
        f"forecast: accuracy {_line_shown(found)} ({found.level:.0%} interval, {basis}); {groups}"
    ]
    if found.upper - found.lower > WIDE:
        width = f"{100 * (found.upper - found.lower):.0f} points"
        lines.append(f"forecast is wide, {width}: more proxy runs near this plan narrow it")
    if found.distance > FAR:
        lines.append(f"forecast {extrapolates(found.distance)}")
    if len(plan.spec.mixture) > 1:
        lines.append("forecast extrapolates: the plan's noise is correlated, not the proxy runs'")
    return lines


def extrapolates(distance: float) -> str:
    """That a forecast extrapolates; empty for one near the proxy runs."""
    if distance <= FAR:
        return ""
    return f"extrapolates: {distance:.1f} times as far from the proxy runs as these from each other"


def reached_line(plan: Plan, accuracy: float | None, dataset: str) -> str | None:
    """The forecast of a plan beside what it reached on a data set; None without either."""
    found = plan.forecast
    if found is None or accuracy is None:
        return None
    place = f"{'inside' if found.lower <= accuracy <= found.upper else 'OUTSIDE'} the interval"
    place = place if found.anchored or dataset == found.dataset else GUESS
    return (
        f"forecast {_line_shown(found)}, reached {accuracy:.2%}: "
        f"{100 * (accuracy - found.accuracy):+.2f} points, {place}"
    )


def _line_shown(one: Forecast | GroupForecast) -> str:
    return f"{one.accuracy:.1%} [{one.lower:.1%}, {one.upper:.1%}]"
