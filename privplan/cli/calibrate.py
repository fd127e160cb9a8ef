"""``privplan calibrate``: the value of one parameter that just keeps a budget."""

from __future__ import annotations

from typing import Any

import click

from privplan.cli.account import population_options, show

UNKNOWNS = ("noise_multiplier", "sampling_ratio", "rounds", "cohort", "delta")
_SPENT = 0.99
"""Share of a budget that is spent wherever less noise can be certified."""


@click.command(name="calibrate", help="Find the one parameter that meets a budget.")
@click.option("--epsilon", type=float, required=True, help="The budget.")
@click.option(
    "--solve-for",
    type=click.Choice(UNKNOWNS),
    default="noise_multiplier",
    show_default=True,
)
@click.option("--noise-multiplier", type=float, help="Noise over the clipping norm.")
@click.option("--sampling-ratio", type=float, help="Chance of a client per round.")
@click.option("--rounds", type=int, help="Number of releases.")
@population_options
@click.option(
    "--accountant", default="pld", show_default=True, help="Accountant of the upper bound."
)
def command(epsilon: float, solve_for: str, form: str, accountant: str, **given: Any) -> None:
    """Print a value at which the accountant's upper bound is at most the budget."""
    from privplan.accounting.composition import calibrated_composition
    from privplan.cli import render

    value, solved = calibrated_composition(solve_for, epsilon, accountant=accountant, **given)
    rows, notes, warnings = solved.certify(list(dict.fromkeys([accountant, "pld", "rdp"])))
    if form == "json":
        extra = {"solved_for": solve_for, "value": value, "budget": epsilon}
        render.data([{**row.model_dump(mode="json"), **extra} for row in rows])
    else:
        shown = f"{value}" if isinstance(value, int) else f"{value:.8g}"
        render.text(f"{solve_for}: {shown}  (keeps epsilon {epsilon:g} by {accountant})")
        show(solved, rows, notes)
    [spent] = [row.epsilon_upper for row in rows if row.accountant == accountant]
    if solve_for == "noise_multiplier" and spent < _SPENT * epsilon:
        render.warn(
            f"noise_multiplier: {value:.8g} is the least that can be calibrated by {accountant} "
            f"here; it spends {spent:.6g} of epsilon {epsilon:g}"
        )
    for warning in warnings:
        render.warn(warning)
