"""Forecasts of plans as lines of text, compared with what was reached."""

from __future__ import annotations

from privplan.plan import Forecast, GroupForecast, Plan

# What a forecast is without a run on its own data: its interval covers nothing.
GUESS = "a guess: no run on this data set"
# Width of an interval from which a line says that the forecast is wide.
WIDE = 0.12
# Distance over the median of the proxy runs from which a forecast extrapolates.
EXTRAPOLATES_FROM = 4.0


def forecast_lines(plan: Plan) -> list[str]:
    """The forecast of a plan, or that it has none; empty for plans of records."""
    forecast = plan.forecast
    if plan.unit != "client":
        return []
    if forecast is None:
        return ["forecast: none, there are no proxy runs (privplan proxy forecast)"]
    basis = f"{forecast.runs} runs on {forecast.dataset}"
    if forecast.anchored:
        basis += ", anchored"
    else:
        basis += f"; on other data {GUESS}"
    if forecast.skew is not None:
        basis += f"; assumes skew {forecast.skew:.2g} of clients' labels (--coverage)"
    groups = [f"{group.group} {_shown(group)}" for group in forecast.groups]
    lines = [
        f"forecast: accuracy {_shown(forecast)} ({forecast.level:.0%} interval, {basis}); "
        f"{', '.join(groups)}{_assumption(forecast)}"
    ]
    width = forecast.upper - forecast.lower
    if width > WIDE:
        lines.append(
            f"forecast is wide, {100 * width:.0f} points: more proxy runs near this plan "
            "narrow it"
        )
    if forecast.distance > EXTRAPOLATES_FROM:
        lines.append(f"forecast {extrapolates(forecast.distance)}")
    return lines


def _assumption(forecast: Forecast) -> str:
    """What a forecast assumes of the groups' classes, where it says so."""
    if forecast.assumes:
        return f"; assumes {forecast.assumes}"
    return ""


def extrapolates(distance: float) -> str:
    """That a forecast extrapolates; empty for one near the proxy runs."""
    if distance <= EXTRAPOLATES_FROM:
        return ""
    return (
        f"extrapolates: {distance:.1f} times as far from the proxy runs as these from "
        "each other"
    )


def reached_line(plan: Plan, accuracy: float | None, dataset: str) -> str | None:
    """The forecast of a plan and what it reached on a data set; None without either."""
    forecast = plan.forecast
    if forecast is None or accuracy is None:
        return None
    place = GUESS
    if forecast.anchored or dataset == forecast.dataset:
        is_inside = forecast.lower <= accuracy <= forecast.upper
        place = f"{'inside' if is_inside else 'OUTSIDE'} the interval"
    return (
        f"forecast {_shown(forecast)}, reached {accuracy:.2%}: "
        f"{100 * (accuracy - forecast.accuracy):+.2f} points, {place}"
    )


def _shown(forecast: Forecast | GroupForecast) -> str:
    return f"{forecast.accuracy:.1%} [{forecast.lower:.1%}, {forecast.upper:.1%}]"
