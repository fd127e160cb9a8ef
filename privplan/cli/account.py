"""``privplan account``: epsilon of a mechanism according to every accountant, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from privplan.accounting.release import SamplingLaw

if TYPE_CHECKING:
    from privplan.accounting.certificate import CertificateRow, Composition

SAMPLING = tuple(str(name) for name in SamplingLaw)
RELATIONS = ("add_remove", "replace_one", "zero_out")


def show(composition: Composition, rows: Sequence[CertificateRow], notes: Sequence[str]) -> None:
    """Print the table of rows, and one line for each accountant without a row."""
    from privplan.cli import render

    cells = []
    for row in rows:
        approximate = row.kind == "approximation"
        lower = "-" if row.epsilon_lower == 0 or approximate else f"{row.epsilon_lower:.6g}"
        upper = f"{'about ' if approximate else ''}{row.epsilon_upper:.6g}"
        role = "guarantee" if row.guarantee else row.kind
        cells.append([row.accountant, lower, upper, role, row.version])
    columns = ["accountant", "at least", "at most", "role", "version"]
    render.text(composition.title)
    render.table("", columns, cells)
    for note in notes:
        render.text(f"no row: {note}")


def population_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every accounting command shares."""
    choice = click.Choice(["table", "json"])
    for option in (
        click.option("--format", "form", type=choice, default="table", show_default=True),
        click.option("--clients", type=int, help="Number of clients; delta becomes clients^-1.1."),
        click.option(
            "--relation", type=click.Choice(RELATIONS), default="add_remove", show_default=True
        ),
        click.option(
            "--sampling", type=click.Choice(SAMPLING), default="poisson", show_default=True
        ),
        click.option("--delta", type=float, help="Failure probability, in (0, 1)."),
    ):
        function = option(function)
    return function


def mechanism_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe the releases."""
    for option in (
        click.option("--rounds", type=int, required=True, help="Number of releases."),
        click.option("--sampling-ratio", type=float, help="Chance of a client per round."),
        click.option(
            "--noise-multiplier",
            type=float,
            required=True,
            help="Standard deviation of the noise over the clipping norm.",
        ),
    ):
        function = option(function)
    return function


@click.command(name="account", help="What a mechanism costs, by every accountant.")
@mechanism_options
@population_options
@click.option("--accountant", "chosen", multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--all", "everything", is_flag=True, help="Second opinions too: prv, dp_accounting, opacus."
)
def account_command(form: str, chosen: tuple[str, ...], everything: bool, **releases: Any) -> None:
    """Print lower and upper bounds on epsilon by accountant, and which one is the guarantee."""
    from privplan.accounting.accountant import second_opinions
    from privplan.accounting.certificate import chosen_accountants, composition
    from privplan.cli import render

    composed = composition(**releases)
    rows, notes, warnings = composed.certify(chosen_accountants(chosen, everything))
    if form == "json":
        render.data([row.model_dump(mode="json") for row in rows])
    else:
        show(composed, rows, notes)
        if not (chosen or everything):
            render.text(f"second opinions ({', '.join(second_opinions())}) with --all")
    for warning in warnings:
        render.warn(warning)


# --- ``privplan calibrate``: the value of one parameter that just keeps a budget. ----------------

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
def calibrate_command(
    epsilon: float, solve_for: str, form: str, accountant: str, **given: Any
) -> None:
    """Print a value at which the accountant's upper bound is at most the budget."""
    from privplan.accounting.certificate import calibrated_composition
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


# --- ``privplan tradeoff``: upper bounds on any attacker's success, as numbers and as a curve. ---


@click.command(name="tradeoff", help="What the best attacker can achieve, as a curve.")
@mechanism_options
@population_options
@click.option("-o", "--output", metavar="PICTURE", help="Draw the curve (.png, .svg or .pdf).")
def tradeoff_command(form: str, output: str | None, **releases: Any) -> None:
    """Print upper bounds on every attack that distinguishes two neighbouring data sets."""
    from privplan.accounting.certificate import composition
    from privplan.cli import render

    if output is not None:
        from privplan.report.plots import picture_name

        kind = picture_name(output)
    composed = composition(**releases)
    row, curve, warnings = composed.tradeoff()
    named = curve.to_dict()
    if output is not None:
        from privplan.files import write_bytes
        from privplan.report.plots import tradeoff_picture

        write_bytes(output, tradeoff_picture(curve, composed.title, kind))
    if form == "json":
        render.data([{**row.model_dump(mode="json"), **named}])
    else:
        cells = [
            [label, value if isinstance(value, str) else f"{value:.6g}"]
            for label, value in (
                ("epsilon, at least", row.epsilon_lower),
                ("epsilon, at most", row.epsilon_upper),
                (
                    f"mu at points down to delta {composed.delta:.3g}",
                    named["gdp_mu"],
                ),
                ("advantage, at most", curve.advantage),
                *(
                    (f"true positives at {level.removeprefix('tpr_at_fpr_')} false positives", rate)
                    for level, rate in named.items()
                    if level.startswith("tpr")
                ),
            )
        ]
        render.text(f"{composed.title}, accountant pld")
        render.table("", ["no attack exceeds", "value"], cells)
        if output is not None:
            render.text(f"wrote {output}")
    for warning in warnings:
        render.warn(warning)
