"""What trade-off curves look like: true against false positives of the best attack."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from privplan.accounting.accountant import at_most
from privplan.accounting.tradeoff import LEVELS, TradeOff
from privplan.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_MU = 40.0  # with more, every rate is 1 in floating point
_LEAST_RATE = 1e-5  # on logarithmic axes
_LABEL_SIZE = 8.5  # points


def tradeoff_panels(curve: TradeOff, title: str) -> list[style.Panel]:
    """True positives against false positives, on linear and logarithmic axes."""
    rates = ", ".join(
        f"{rate:.3g} at {level:g} false positives"
        for level, rate in zip(LEVELS, curve.true_positives, strict=True)
    )
    advantage = at_most(curve.advantage)
    alt = (
        f"{title}: no attack has an advantage above {advantage}; true positives {rates}"
    )
    return [
        style.Panel(
            "tradeoff",
            style.shortened(title, 44),
            f"{alt}.",
            partial(_draw_linear, curve),
            3.4,
        ),
        style.Panel(
            "tradeoff-log",
            f"Advantage at most {advantage}",
            f"{alt}, on logarithmic axes.",
            partial(_draw_logarithmic, curve),
            3.4,
        ),
    ]


def _draw_curves(curve: TradeOff, axes: Axes, theme: style.Theme) -> None:
    """The bound, the Gaussian curve that touches it, and that of guessing."""
    from scipy.special import ndtr, ndtri

    false_positives = curve.false_positive_axis[1:]
    true_positives = curve.true_positive_axis[1:]
    # Of a mu-GDP mechanism: Phi(Phi^-1(a) + mu) (Dong, Roth and Su 2022).
    gaussian = ndtr(ndtri(false_positives) + min(curve.mu, _MAX_MU))
    axes.plot(false_positives, false_positives, color=theme.quiet, lw=1, ls="--")
    axes.plot(false_positives, gaussian, color=theme.bad, lw=1.2)
    axes.plot(false_positives, true_positives, color=theme.good, lw=2.2)
    axes.set_xlabel("false positives: of those who did not take part (share)")
    axes.set_ylabel("true positives (share)")


def _draw_linear(curve: TradeOff, axes: Axes, theme: style.Theme) -> None:
    """The curves with their names."""
    _draw_curves(curve, axes, theme)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    labels = {
        "no attack is above": theme.good,
        f"{curve.mu:.3g}-GDP, down to delta": theme.bad,
        "guessing": theme.quiet,
    }
    for row, (label, colour) in enumerate(labels.items()):
        height = 0.26 - 0.09 * row
        axes.text(0.97, height, label, color=colour, ha="right", fontsize=_LABEL_SIZE)


def _draw_logarithmic(curve: TradeOff, axes: Axes, theme: style.Theme) -> None:
    """The curves with their numbers at ``LEVELS``."""
    _draw_curves(curve, axes, theme)
    axes.set(xscale="log", xlim=(_LEAST_RATE, 1.0))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(yscale="log", ylim=(_LEAST_RATE, 1.0))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.plot(LEVELS, curve.true_positives, "o", color=theme.good, ms=5)
    for level, rate in zip(LEVELS, curve.true_positives, strict=True):
        axes.annotate(
            f"{rate:.2g}",
            (level, rate),
            (-5, 5),
            ha="right",
            textcoords="offset points",
            fontsize=_LABEL_SIZE,
        )
