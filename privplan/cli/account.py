"""``privplan account``: epsilon of a mechanism according to every accountant, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from privplan.accounting.release import SamplingLaw

if TYPE_CHECKING:
    from privplan.accounting.certificate import CertificateRow
    from privplan.accounting.composition import Composition

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
def command(form: str, chosen: tuple[str, ...], everything: bool, **releases: Any) -> None:
    """Print lower and upper bounds on epsilon by accountant, and which one is the guarantee."""
    from privplan.accounting.accountant import second_opinions
    from privplan.accounting.composition import chosen_accountants, composition
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
