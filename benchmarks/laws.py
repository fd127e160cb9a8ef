"""Noise that each sampling law needs at equal budgets, as a table and as docs/laws.png.

python benchmarks/laws.py [--rounds 50] [--cohort-share 0.02] [--delta 6.98e-5] [--plot
laws.png]
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


def noise(law: str, epsilon: float, asked: argparse.Namespace) -> float:
    """The least noise multiplier at an equal mean cohort, as much as the last model holds of it.

    Where noise is correlated over rounds that is less: what independent noise would
    leave as much.
    """
    own = SamplingLaw(law).law
    rounds = own.rounds_of_client(asked.rounds)
    ratio = min(asked.share / own.drawable(1), 1.0)
    least = calibrate(
        "noise_multiplier", epsilon, asked.delta,
        sampling_ratio=1.0 if own.everyone else ratio, rounds=rounds, sampling=law,
    )  # fmt: skip
    return least * own.noise_left(own.recipe_momentum, asked.rounds)


def main() -> None:
    """Print the table, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--cohort-share", type=float, default=0.02, dest="share")
    parser.add_argument("--delta", type=float, default=6.98e-5)
    parser.add_argument("--plot", type=Path, default=Path("docs/laws.png"))
    asked = parser.parse_args()
    block = round(1 / asked.share)
    bands = math.gcd(5, block)
    curved = [
        "fixed_size", "poisson", f"banded_separation:{block}", f"random_allocation:{block}",
        f"cyclic_poisson:{bands}", f"cyclic_allocation:{bands}:{block // bands}",
    ]  # fmt: skip
    for law in ("full", f"min_separation:{block}", "capped_poisson:1000000", *curved):
        found = [noise(law, epsilon, asked) for epsilon in (0.5, 1.5, 3.0)]
        print(
            f"| `{law}` | " + " | ".join(f"{one:.3f}" for one in found) + " |",
            flush=True,
        )
    budgets = [0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8]
    curves = {law: [noise(law, one, asked) for one in budgets] for law in curved}

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

    law = f"{asked.rounds} rounds, cohorts of {asked.share:.0%}, delta {asked.delta:g}"
    write_bytes(asked.plot, picture([Panel("laws", law, "noise by law", draw, 3.4)]))


if __name__ == "__main__":
    main()
