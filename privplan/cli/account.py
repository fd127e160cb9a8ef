"""``privplan account``: epsilon of a mechanism by every accountant, and its trade-off curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from privplan.accounting.release import SamplingLaw
from privplan.cli import PROVE
from privplan.laws.law import FAMILIES

if TYPE_CHECKING:
    from privplan.accounting.certificate import Certificate
    from privplan.accounting.composition import Composition
    from privplan.proof import Finding

SAMPLING = (
    *map(str, SamplingLaw),
    *(one.phrase.split("'")[1] for _, one in FAMILIES.items()),
)
RELATIONS = ("add_remove", "replace_one", "zero_out")


def show(
    composition: Composition,
    rows: Certificate,
    findings: Mapping[str, Finding] | None = None,
) -> None:
    """Print the table of rows, and one line for each accountant without a row."""
    from privplan.cli import render
    from privplan.report.tables import certificate_table

    _, columns, cells, versions = certificate_table(rows, findings=findings)
    render.text(composition.title)
    names = [
        "accountant",
        "at least",
        "at most",
        "role",
        *(["proven"] if findings else []),
    ]
    places = [columns.index(name) for name in names]
    table = [[line[place] for place in places] for line in (columns, *cells)]
    render.table("", table[0], table[1:], versions)
    for note in rows.notes:
        render.text(f"no row: {note}")


def population_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every accounting command shares."""
    choice = click.Choice(["table", "json"])
    for option in (
        click.option(
            "--format", "form", type=choice, default="table", show_default=True
        ),
        click.option(
            "--clients", type=int, help="Number of clients; delta becomes clients^-1.1."
        ),
        click.option(
            "--relation",
            type=click.Choice(RELATIONS),
            default="add_remove",
            show_default=True,
        ),
        click.option(
            "--sampling",
            default="poisson",
            metavar="LAW",
            show_default=True,
            help=" | ".join(SAMPLING),
        ),
        click.option(
            "--contributions",
            type=int,
            default=1,
            help="Most clients that one person has.",
        ),
        click.option("--delta", type=float, help="Failure probability, in (0, 1)."),
    ):
        function = option(function)
    return function


@click.command(
    name="account",
    epilog="Example: privplan account --noise-multiplier 1.5 --sampling-ratio 0.02 --rounds 50 "
    "--delta 1e-5",
)
@click.option(
    "--noise-multiplier",
    type=float,
    required=True,
    help="Standard deviation of the noise over the clipping norm.",
)
@click.option("--sampling-ratio", type=float, help="Chance of a client per round.")
@click.option("--rounds", type=int, required=True, help="Number of releases.")
@population_options
@click.option(
    "--accountant", "chosen", multiple=True, help="Only this one; may be repeated."
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Second opinions too: prv, dp_accounting, opacus.",
)
@click.option("--prove", is_flag=True, help=PROVE)
@click.option(
    "--tradeoff",
    "picture",
    is_flag=False,
    flag_value="",
    metavar="[PICTURE]",
    help="Instead: what the best attacker can achieve, by the accountant pld; as a curve, too, in "
    "that file (.png, .svg or .pdf).",
)
@click.pass_context
def account_command(
    context: click.Context,
    /,
    form: str,
    chosen: tuple[str, ...],
    everything: bool,
    prove: bool,
    picture: str | None,
    **releases: Any,
) -> None:
    """What a mechanism costs: lower and upper bounds on epsilon by accountant.

    The row that says guarantee is the one to rely on.
    """
    from privplan.accounting.accountant import loadable_accountants, second_opinions
    from privplan.accounting.composition import composition
    from privplan.cli import render
    from privplan.proven import finding_on, plain, proof_program
    from privplan.proven import lines as unproven_lines
    from privplan.report.style import picture_name

    if prove:
        proof_program()
    if picture is not None:
        render.refuse_options(
            context, ("chosen", "everything"), "cannot go with --tradeoff"
        )
    if picture:
        picture_name(picture)  # its ending is refused before anything is computed
    composed, curve = composition(**releases), None
    if picture is None:
        rows = composed.certify(
            chosen or (loadable_accountants() if everything else ())
        )
    else:
        rows, curve = composed.tradeoff()
    if curve is not None and picture:
        curve.plot().save(picture)
    findings: dict[str, Finding] = {}
    for row in rows if prove else ():
        if row.guarantee:
            bound = (row.relation, row.epsilon_upper, row.delta)
            findings[row.group] = finding_on(composed.history, *bound)
    if form == "json":
        more: dict[str, Any] = {} if curve is None else dict(curve.to_dict())
        more |= {"proven": plain(findings)} if prove else {}
        render.data([{**row.model_dump(mode="json"), **more} for row in rows])
    else:
        show(composed, rows, findings)
        for line in unproven_lines(findings):
            render.text(line)
        law, rounds = SamplingLaw(releases["sampling"]).law, releases["rounds"]
        if (most := law.rounds_for(law.rounds_of_client(rounds))) > rounds:
            render.text(
                f"{rounds} rounds cost what {most} do: a client counts in whole turns"
            )
        if curve is not None:
            render.text(str(curve) + f"\nwrote {picture}" * bool(picture))
        elif not (chosen or everything):
            render.text(f"second opinions ({', '.join(second_opinions())}) with --all")
    for warning in rows.warnings:
        render.warn(warning)


# --- ``privplan calibrate``: the value of one parameter that just keeps a budget. ----------------

UNKNOWNS = ("noise_multiplier", "sampling_ratio", "rounds", "cohort", "delta")
_SPENT = 0.99  # share of a budget that is spent wherever less noise can be certified


@click.command(
    name="calibrate",
    epilog="Example: privplan calibrate --epsilon 0.5 --delta 1e-5 --sampling-ratio 0.02 "
    "--rounds 50",
)
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
    "--accountant",
    default="pld",
    show_default=True,
    help="Accountant of the upper bound.",
)
def calibrate_command(
    epsilon: float, solve_for: str, form: str, accountant: str, **releases: Any
) -> None:
    """Find the one parameter that meets a budget.

    At its value the accountant's upper bound is at most the budget.
    """
    from privplan.accounting.accountant import at_most
    from privplan.accounting.composition import calibrated_composition
    from privplan.cli import render

    value, solved = calibrated_composition(
        solve_for, epsilon, accountant=accountant, **releases
    )
    rows = solved.certify(list(dict.fromkeys([accountant, "pld", "rdp"])))
    if form == "json":
        extra = {"solved_for": solve_for, "value": value, "budget": epsilon}
        render.data([{**row.model_dump(mode="json"), **extra} for row in rows])
    else:
        shown = f"{value}" if isinstance(value, int) else f"{value:.8g}"
        render.text(
            f"{solve_for}: {shown}  (keeps epsilon {epsilon:g} by {accountant})"
        )
        show(solved, rows)
    [spent] = [row.epsilon_upper for row in rows if row.accountant == accountant]
    if solve_for == "noise_multiplier" and spent < _SPENT * epsilon:
        render.warn(
            f"noise_multiplier: {value:.8g} is the least that can be calibrated by {accountant} "
            f"here; it spends {at_most(spent, 6)} of epsilon {epsilon:g}"
        )
    if over := [row for row in rows if row.guarantee and row.epsilon_upper > epsilon]:
        render.warn(f"{accountant} bounds nothing here: the guarantee is epsilon "
                    f"{at_most(over[0].epsilon_upper, 6)}, by {over[0].accountant}")  # fmt: skip
    for warning in rows.warnings:
        render.warn(warning)
