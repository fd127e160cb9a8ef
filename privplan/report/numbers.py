"""Numbers as text: bounds are rounded outwards, accuracies are percents."""

from __future__ import annotations

import math

from privplan.accounting.accountant import outwards
from privplan.record import ACCURACY

_DECIMALS = 1e4  # four decimals, as rates of an attack are written


def lower(value: float | None) -> str:
    """A lower bound on epsilon, rounded down; None means infinite."""
    if value is None:
        return "inf"
    return _four_decimals(outwards(value, False))


def upper(value: float | None) -> str:
    """An upper bound on epsilon, rounded up; None means infinite."""
    if value is None:
        return "inf"
    return _four_decimals(outwards(value, True))


def _four_decimals(value: float) -> str:
    """A number that was rounded before, with more decimals where it has more."""
    text = f"{value:.4f}"
    if float(text) == value:
        return text
    return f"{value:.12g}"


def six(value: float | None, up: bool = True) -> str:
    """A bound with six digits, rounded outwards; None means infinite."""
    if value is None:
        return "inf"
    return f"{outwards(value, up, 6):.6g}"


def rate(value: float) -> str:
    """An upper bound on a rate of an attack, rounded up to four decimals."""
    return f"{math.ceil(_DECIMALS * value) / _DECIMALS:.4f}"


def percent(value: float | None) -> str:
    """An accuracy; empty for None."""
    if value is None:
        return ""
    return f"{100 * value:.1f}%"


def score(metric: str, value: float | None) -> str:
    """A score: accuracies in percent, others as numbers; empty for None."""
    if metric == ACCURACY or value is None:
        return percent(value)
    return f"{value:.4g}"


def rounded_up(value: float, digits: int = 1) -> str:
    """An upper bound with so many decimals at most."""
    return f"{math.ceil(value * 10**digits) / 10**digits:g}"
