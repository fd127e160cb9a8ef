"""Forecasts of plans as lines of text, and beside what was reached."""

from __future__ import annotations

from privplan.plan import Forecast, GroupForecast, Plan

FAR = 4.0
"""Distance, over the median of the proxy runs, from which a forecast is said to extrapolate."""


def forecast_lines(plan: Plan) -> list[str]:
    """The forecast of a plan, or that it has none, one line each; empty for plans of records."""
    found = plan.forecast
    if plan.unit != "client":
        return []
    if found is None:
        return ["forecast: none, there are no proxy runs (privplan forecast-proxy)"]
    basis = f"{found.runs} runs on {found.dataset}" + ", anchored" * found.anchored
    groups = ", ".join(f"{one.group} {_shown(one)}" for one in found.groups)
    lines = [f"forecast: accuracy {_shown(found)} ({found.level:.0%} interval, {basis}); {groups}"]
    if found.distance > FAR:
        lines.append(f"forecast {extrapolates(found.distance)}")
    if plan.spec.sampling.law.turns > 1:
        lines.append("forecast extrapolates: the plan's noise is correlated, not the proxy runs'")
    return lines


def extrapolates(distance: float) -> str:
    """That a forecast extrapolates; empty for one near the proxy runs.

    Args:
        distance: to the nearest proxy run, over the median distance between those.
    """
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
        f"forecast {_shown(found)}, reached {accuracy:.2%}: "
        f"{100 * (accuracy - found.accuracy):+.2f} points, {place} the interval"
    )


def _shown(one: Forecast | GroupForecast) -> str:
    return f"{one.accuracy:.1%} [{one.lower:.1%}, {one.upper:.1%}]"
