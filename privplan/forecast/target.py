"""Inverse question: the least epsilons, cohort or rounds whose forecast reaches an accuracy."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from privplan.errors import InfeasibleError, InputError, PrivplanError
from privplan.forecast.features import Coverage, features_of
from privplan.forecast.model import Forecaster, with_forecast
from privplan.plan import Forecast, GroupForecast, Plan
from privplan.planning.inverse import UNKNOWNS, changed_by, noise_and_weights
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

_STEPS = 17
"""Values of the unknown that are tried before bisection."""
_TOLERANCE = 0.005
"""Relative tolerance of the unknown."""
_RANGE = 64.0
"""Largest factor between the unknown and its value in the spec, in either direction."""


def forecast_accuracy(spec: Spec, model: Forecaster, coverage: Coverage) -> tuple[float, float]:
    """Forecast of a spec's plan before certification: accuracy in [0, 1], and its distance."""
    noise, weights = noise_and_weights(spec)
    left = noise / spec.clipping_norm * spec.noise_left
    features = features_of(spec, left, weights)
    return model.accuracy(features, coverage), model.distance_of(features, coverage)


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
    if unknown not in UNKNOWNS:
        raise InputError.one("solve_for", f"must be one of {', '.join(UNKNOWNS)}", unknown)
    make, low, high, own = changed_by(spec, "target_accuracy", unknown)
    low, high = max(low, own - math.log(_RANGE)), min(high, own + math.log(_RANGE))
    known: dict[float, float] = {}
    with suppress(InfeasibleError):  # other faults are those of the spec, not of a value
        forecast_accuracy(spec, model, coverage)

    def reached(argument: float) -> float:
        if argument not in known:
            try:
                known[argument] = forecast_accuracy(make(math.exp(argument)), model, coverage)[0]
            except PrivplanError:  # no plan there, such as a budget below every noise
                known[argument] = 0.0
        return known[argument]

    goal, before, found = target / 100, None, None
    for argument in map(float, np.linspace(low, high, _STEPS)):
        if reached(argument) >= goal:
            found = argument
            break
        before = argument
    if found is None:
        best = max(known, key=lambda argument: known[argument])
        raise InfeasibleError(
            f"target_accuracy: {target:g} cannot be reached by {unknown}; the largest forecast is "
            f"{known[best]:.1%}, at {_shown(unknown, make(math.exp(best)), math.exp(best))}"
        )
    while before is not None and found - before > _TOLERANCE:
        middle = (before + found) / 2
        before, found = (before, middle) if reached(middle) >= goal else (middle, found)
    decided = make(math.exp(found))
    plan = with_forecast(solve(decided, second_opinion=second_opinion), model, coverage)
    asked = _shown(unknown, decided, math.exp(found))
    note = f"target_accuracy: {target:g} asks for {asked} by the forecast"
    if before is None:
        note = (
            f"target_accuracy: {target:g} (percent) is below every forecast by {unknown}; this is "
            f"the least that is tried, {asked}, with {reached(found):.1%}"
        )
    return plan.model_copy(update={"warnings": (note, *plan.warnings)})


def _shown(unknown: str, decided: Spec, value: float) -> str:
    """The unknown with its value in a spec."""
    if unknown == "epsilon":
        each = ", ".join(f"{group.name} {group.epsilon:.4g}" for group in decided.groups)
        return f"epsilon x {value:.4g} ({each})"
    return f"{unknown} {getattr(decided, unknown):.6g}"


# --- Forecasts of plans as lines of text, and beside what was reached. ---------------------------

FAR = 4.0
"""Distance, over the median of the proxy runs, from which a forecast is said to extrapolate."""


def forecast_lines(plan: Plan) -> list[str]:
    """The forecast of a plan, or that it has none, one line each; empty for plans of records."""
    found = plan.forecast
    if plan.unit != "client":
        return []
    if found is None:
        return ["forecast: none, there are no proxy runs (privplan proxy forecast)"]
    basis = f"{found.runs} runs on {found.dataset}" + ", anchored" * found.anchored
    groups = ", ".join(f"{one.group} {_line_shown(one)}" for one in found.groups)
    lines = [
        f"forecast: accuracy {_line_shown(found)} ({found.level:.0%} interval, {basis}); {groups}"
    ]
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


def reached_line(plan: Plan, accuracy: float | None) -> str | None:
    """The forecast of a plan beside an accuracy that it reached; None without either."""
    found = plan.forecast
    if found is None or accuracy is None:
        return None
    place = "inside" if found.lower <= accuracy <= found.upper else "OUTSIDE"
    return (
        f"forecast {_line_shown(found)}, reached {accuracy:.2%}: "
        f"{100 * (accuracy - found.accuracy):+.2f} points, {place} the interval"
    )


def _line_shown(one: Forecast | GroupForecast) -> str:
    return f"{one.accuracy:.1%} [{one.lower:.1%}, {one.upper:.1%}]"
