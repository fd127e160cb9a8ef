"""Forecasts of plans as lines of text, and beside what was reached."""

from __future__ import annotations

from privplan.plan import Forecast, GroupForecast, Plan

GUESS = "a guess: no run on this data set"
"""What a forecast is without a run on the data that it is of: its interval covers nothing."""
WIDE = 0.12  # width of an interval from which a line says that the forecast is wide
FAR = (
    4.0  # distance over the median of the proxy runs from which a forecast extrapolates
)


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
        lines.append(
            f"forecast is wide, {width}: more proxy runs near this plan narrow it"
        )
    if found.distance > FAR:
        lines.append(f"forecast {extrapolates(found.distance)}")
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
