"""Noise that each sampling law needs at equal budgets, as a table and as docs/laws.png.

python benchmarks/laws.py [--rounds 50] [--cohort-share 0.02] [--delta 6.98e-5]
    [--plot laws.png]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from privplan.accounting.calibrate import calibrate
from privplan.accounting.release import SamplingLaw
from privplan.files import write_bytes
from privplan.report.style import (
    LineEnd,
    Panel,
    Theme,
    by_factors,
    name_lines,
    picture,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def noise(name: str, epsilon: float, options: argparse.Namespace) -> float:
    """The least noise multiplier at an equal mean cohort, as the last model holds it.

    Where noise is correlated over rounds that is less: what independent noise would
    leave as much.
    """
    law = SamplingLaw(name).law
    ratio = 1.0 if law.everyone else min(options.share / law.drawable(1), 1.0)
    multiplier = calibrate(
        "noise_multiplier",
        epsilon,
        options.delta,
        sampling_ratio=ratio,
        rounds=law.rounds_of_client(options.rounds),
        sampling=name,
    )
    return multiplier * law.noise_left(law.recipe_momentum, options.rounds)


def main() -> None:
    """Print the table, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--cohort-share", type=float, default=0.02, dest="share")
    parser.add_argument("--delta", type=float, default=6.98e-5)
    parser.add_argument("--plot", type=Path, default=Path("docs/laws.png"))
    options = parser.parse_args()
    block = round(1 / options.share)
    bands = math.gcd(5, block)
    curved = [
        "fixed_size",
        "poisson",
        f"banded_separation:{block}",
        f"random_allocation:{block}",
        f"cyclic_poisson:{bands}",
        f"cyclic_allocation:{bands}:{block // bands}",
    ]
    for law in ("full", f"min_separation:{block}", "capped_poisson:1000000", *curved):
        cells = [f"{noise(law, epsilon, options):.3f}" for epsilon in (0.5, 1.5, 3.0)]
        print(f"| `{law}` | {' | '.join(cells)} |", flush=True)
    write_bytes(options.plot, picture([panel_of(curved, options)]))


def panel_of(laws: list[str], options: argparse.Namespace) -> Panel:
    """A curve of each law over epsilon."""
    budgets = [0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8]
    curves: dict[str, list[float]] = {}
    for law in laws:
        curves[law] = [noise(law, epsilon, options) for epsilon in budgets]

    def draw(axes: Axes, theme: Theme) -> None:
        ends = []
        for place, (law, line) in enumerate(curves.items()):
            colour, dash = theme.line(place)
            axes.plot(budgets, line, dash, color=colour)
            ends.append(LineEnd(budgets[-1], line[-1], law, colour))
        by_factors(axes, budgets)
        axes.set(
            yscale="log", xlabel="epsilon", ylabel="noise multiplier, in the last model"
        )
        axes.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
        axes.minorticks_off()
        name_lines(axes, ends)

    title = (
        f"{options.rounds} rounds, cohorts of {options.share:.0%}, delta "
        f"{options.delta:g}"
    )
    return Panel("laws", title, "noise by law", draw, 3.4)


if __name__ == "__main__":
    main()
