"""The attacker's trade-off curve as a picture."""

from __future__ import annotations

from privplan.accounting.readings import LEVELS, Readings
from privplan.report.plots import BLUE, GREY, ORANGE, figure, picture, tidy


def tradeoff_picture(found: Readings, title: str, form: str = "png") -> bytes:
    """True-positive against false-positive rate, linear and logarithmic side by side.

    Args:
        found: the readings.
        title: what the curve belongs to (law, relation, delta).
        form: image format.
    """
    from scipy.special import ndtr, ndtri

    page = figure(9.0, 4.0)
    panels = page.subplots(1, 2)
    wrong, right = found.false_positive_axis[1:], found.true_positive_axis[1:]
    gaussian = ndtr(ndtri(wrong) + min(found.mu, 40.0))
    for axes, scale in zip(panels, ("linear", "log"), strict=True):
        axes.plot(wrong, wrong, color=GREY, lw=1, ls="--", label="guessing")
        axes.plot(wrong, gaussian, color=ORANGE, lw=1, label=f"{found.mu:.4g}-GDP (down to delta)")
        axes.plot(wrong, right, color=BLUE, lw=2, label="no attack is above")
        axes.set_xscale(scale)
        axes.set_yscale(scale)
        axes.set_xlabel("false-positive rate")
    panels[1].set_xlim(1e-5, 1)
    panels[1].set_ylim(1e-5, 1.2)
    panels[1].plot(LEVELS, found.true_positives, "o", color=BLUE, ms=4)
    panels[0].set_ylabel("true-positive rate")
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    tidy(panels[0], title)
    tidy(panels[1], f"advantage at most {found.advantage:.4g}")
    return picture(page, form)
