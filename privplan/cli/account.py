"""``privplan account`` and ``calibrate``: epsilon of a mechanism, and the reverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from privplan.accounting.release import SamplingLaw
from privplan.cli import PROVE
from privplan.laws.law import FAMILIES, Law

if TYPE_CHECKING:
    from privplan.accounting.certificate import Certificate
    from privplan.accounting.composition import Composition
    from privplan.proof import Finding

SAMPLING = (
    *map(str, SamplingLaw),
    *(family.phrase.split("'")[1] for _, family in FAMILIES.items()),
)
"""Sampling laws, and an example of each family of laws."""
RELATIONS = ("add_remove", "replace_one", "zero_out")


def show(
    composition: Composition,
    rows: Certificate,
    findings: Mapping[str, Finding] | None = None,
) -> None:
    """Print the table of rows, and a line for each accountant without a row."""
    from privplan.cli import render
    from privplan.report.tables import certificate_table

    _, columns, cells, versions = certificate_table(rows, findings=findings)
    render.text(composition.title)
    names = ["accountant", "at least", "at most", "role"]
    if findings:
        names.append("proven")
    shown_cells = itemgetter(*map(columns.index, names))
    shown_rows = [list(shown_cells(line)) for line in cells]
    render.table("", names, shown_rows, versions)
    for note in rows.notes:
        render.text(f"no row: {note}")


def population_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every accounting command shares."""
    form = click.option(
        "--format",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
    )
    clients = click.option(
        "--clients", type=int, help="Number of clients; delta becomes clients^-1.1."
    )
    relation = click.option(
        "--relation",
        type=click.Choice(RELATIONS),
        default="add_remove",
        show_default=True,
    )
    sampling = click.option(
        "--sampling",
        default="poisson",
        metavar="LAW",
        show_default=True,
        help=" | ".join(SAMPLING),
    )
    contributions = click.option(
        "--contributions",
        type=int,
        default=1,
        help="Most clients that one person has.",
    )
    delta = click.option("--delta", type=float, help="Failure probability, in (0, 1).")
    for option in (form, clients, relation, sampling, contributions, delta):
        function = option(function)
    return function


@click.command(
    name="account",
    epilog="Example: privplan account --noise-multiplier 1.5 --sampling-ratio 0.02 --rounds 50 "
    "--delta 1e-5; what a plan costs is in privplan explain plan.json",
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
    from privplan.proven import plain, proof_program
    from privplan.report.style import picture_name

    if prove:
        proof_program()
    if picture is not None:
        rule = "cannot go with --tradeoff"
        render.refuse_options(context, ("chosen", "everything"), rule)
    # Its ending is refused before anything is computed.
    if picture:
        picture_name(picture)

    context.with_resource(render.watched())
    composed = composition(**releases)
    curve = None
    if picture is None:
        every_accountant = loadable_accountants() if everything else ()
        rows = composed.certify(chosen or every_accountant)
    else:
        rows, curve = composed.tradeoff()
        if picture:
            curve.plot().save(picture)
    findings = _findings(composed, rows) if prove else {}

    if form == "json":
        added: dict[str, Any] = {} if curve is None else dict(curve.to_dict())
        if prove:
            added["proven"] = plain(findings)
        render.data([{**row.model_dump(mode="json"), **added} for row in rows])
    else:
        show(composed, rows, findings)
        _show_notes(findings, releases["sampling"], releases["rounds"])
        if curve is not None:
            render.text(f"{curve}\nwrote {picture}" if picture else str(curve))
        elif not (chosen or everything):
            render.text(f"second opinions ({', '.join(second_opinions())}) with --all")
    for warning in rows.warnings:
        render.warn(warning)


def _findings(composed: Composition, rows: Certificate) -> dict[str, Finding]:
    """What the proof program finds of each bound that guarantees."""
    from privplan.proven import finding_on

    return {
        row.group: finding_on(
            composed.history, row.relation, row.epsilon_upper, row.delta
        )
        for row in rows
        if row.guarantee
    }


def _show_notes(findings: Mapping[str, Finding], sampling: str, rounds: int) -> None:
    """Print what was not proven, and where more rounds would cost the same."""
    from privplan.cli import render
    from privplan.proven import lines as unproven_lines

    for line in unproven_lines(findings):
        render.text(line)
    law = SamplingLaw(sampling).law
    largest = law.rounds_for(law.rounds_of_client(rounds))
    if largest > rounds:
        line = f"{rounds} rounds cost what {largest} do"
        render.text(f"{line}: a client counts in whole turns")


def _show_noise_left(law: Law, rounds: int, noise_multiplier: float) -> None:
    """What models hold of correlated noise, as much as independent noise."""
    from privplan.cli import render

    momentum = law.recipe_momentum
    last_model = law.noise_left(momentum, rounds)
    if last_model != 1:
        render.text(
            f"noise in the last model as much as independent: "
            f"{noise_multiplier * last_model:.4g} clipping norms of a sum (server momentum "
            f"{momentum:g})"
        )


UNKNOWNS = ("noise_multiplier", "sampling_ratio", "rounds", "cohort", "delta")
"""Parameters of which ``privplan calibrate`` finds one."""


class _Unknown(click.Choice):  # type: ignore[type-arg,unused-ignore]
    """One of the unknowns; who asks for epsilon is led to the command that says it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The unknown."""
        if value == "epsilon":
            self.fail("epsilon is what privplan account computes.", param, ctx)
        return super().convert(value, param, ctx)


# Share of a budget that is spent wherever less noise can be certified.
_SPENT = 0.99


@click.command(
    name="calibrate",
    epilog="Example: privplan calibrate --epsilon 0.5 --delta 1e-5 --sampling-ratio 0.02 "
    "--rounds 50",
)
@click.option("--epsilon", type=float, required=True, help="The budget.")
@click.option(
    "--solve-for",
    type=_Unknown(UNKNOWNS),
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

    with render.watched():
        value, solved = calibrated_composition(
            solve_for, epsilon, accountant=accountant, **releases
        )
    rows = solved.certify(list(dict.fromkeys([accountant, "pld", "rdp"])))
    if form == "json":
        answer = {"solved_for": solve_for, "value": value, "budget": epsilon}
        render.data([{**row.model_dump(mode="json"), **answer} for row in rows])
    else:
        shown = f"{value}" if isinstance(value, int) else f"{value:.8g}"
        promise = f"keeps epsilon {epsilon:g} by {accountant}"
        render.text(f"{solve_for}: {shown}  ({promise})")
        if solve_for == "noise_multiplier":
            law = SamplingLaw(releases["sampling"]).law
            _show_noise_left(law, releases["rounds"], float(value))
        show(solved, rows)
    [spent] = [row.epsilon_upper for row in rows if row.accountant == accountant]
    if solve_for == "noise_multiplier" and spent < _SPENT * epsilon:
        render.warn(
            f"noise_multiplier: {value:.8g} is the least that can be calibrated by "
            f"{accountant} here; it spends {at_most(spent, 6)} of epsilon {epsilon:g}"
        )
    # An accountant that is no bound can name a value at which another one spends more.
    above = [row for row in rows if row.guarantee and row.epsilon_upper > epsilon]
    if above:
        guarantee = f"epsilon {at_most(above[0].epsilon_upper, 6)}"
        render.warn(
            f"{accountant} bounds nothing here: the guarantee is {guarantee}, "
            f"by {above[0].accountant}"
        )
    for warning in rows.warnings:
        render.warn(warning)
