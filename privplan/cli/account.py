"""``privplan account``: what a mechanism costs, by every accountant, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from privplan.accounting.certificate import CertificateRow
    from privplan.accounting.release import History, Relation

SAMPLING = ("poisson", "fixed_size", "full")
RELATIONS = ("add_remove", "replace_one", "zero_out")
# The others import libraries that take longer to load than a second.
FAST = ("pld", "rdp", "closed_form", "gdp")
MOST_RELEASES = 10**12


@dataclass(frozen=True)
class Mechanism:
    """A checked mechanism: T equal releases, read at delta under a relation."""

    history: History
    delta: float
    relation: Relation
    clients: int | None

    @property
    def title(self) -> str:
        """The cell in words: everything that an epsilon depends on."""
        from privplan.accounting.certificate import laws

        return f"epsilon at delta {self.delta:.4g}, {laws(self.history)} sampling, {self.relation}"


def checked(
    noise_multiplier: float,
    sampling_ratio: float | None,
    rounds: int,
    delta: float | None,
    sampling: str,
    relation: str,
    clients: int | None,
) -> Mechanism:
    """The mechanism that the flags describe; every fault at once.

    Without ``delta`` it is ``clients ** -1.1``; without a ratio, full participation has 1.

    Raises:
        InputError: when a flag is missing or out of range.
    """
    from privplan.accounting.release import History, Relation, Release, SamplingLaw
    from privplan.errors import Fault, InputError
    from privplan.values import LARGEST, LEAST

    faults = []
    if sampling_ratio is None and sampling == "full":
        sampling_ratio = 1.0
    if sampling_ratio is None or not LEAST <= sampling_ratio <= 1:
        faults.append(Fault("sampling_ratio", f"must be in [{LEAST:g}, 1]", sampling_ratio))
    elif sampling == "full" and sampling_ratio != 1:
        faults.append(Fault("sampling_ratio", "must be 1 under full participation", sampling_ratio))
    if not LEAST <= noise_multiplier <= LARGEST:
        rule = f"must be in [{LEAST:g}, {LARGEST:g}]"
        faults.append(Fault("noise_multiplier", rule, noise_multiplier))
    if not 1 <= rounds <= MOST_RELEASES:
        faults.append(Fault("rounds", f"must be in [1, {MOST_RELEASES}]", rounds))
    faults += [Fault(*fault) for fault in population_faults(delta, clients)]
    if faults:
        raise InputError(faults)
    release = Release(noise_multiplier, float(sampling_ratio or 0), SamplingLaw(sampling))
    history = History.repeated(release, rounds)
    return Mechanism(history, chosen_delta(delta, clients), Relation(relation), clients)


def population_faults(delta: float | None, clients: int | None) -> list[tuple[str, str, object]]:
    """What is wrong with delta and the number of clients."""
    from privplan.values import LEAST

    faults: list[tuple[str, str, object]] = []
    if clients is not None and clients < 1:
        faults.append(("clients", "must be 1 or more", clients))
    if delta is None and (clients is None or clients < 2):
        faults.append(("delta", "must be given, or 2 or more clients for clients^-1.1", delta))
    if delta is not None and not LEAST <= delta < 1:
        faults.append(("delta", f"must be in [{LEAST:g}, 1)", delta))
    return faults


def chosen_delta(delta: float | None, clients: int | None) -> float:
    """Delta as given, or clients^-1.1."""
    return delta if delta is not None else float(clients or 0) ** -1.1


def population_warnings(mechanism: Mechanism) -> list[str]:
    """What is odd about delta or the cohort, given the number of clients."""
    clients, found = mechanism.clients, []
    if clients is None:
        return []
    if mechanism.delta >= 1 / clients:
        found.append(
            f"delta {mechanism.delta:g} is not below 1/clients = {1 / clients:.4g}: a mechanism "
            f"that publishes one client at random would pass; clients^-1.1 is {clients**-1.1:.4g}"
        )
    for release, _ in mechanism.history:
        cohort = release.sampling_ratio * clients
        if release.sampling == "fixed_size" and abs(cohort - round(cohort)) > 1e-6 * cohort:
            found.append(
                f"a cohort of {cohort:.6g} of {clients} clients is not whole; the nearest ratio "
                f"is {max(round(cohort), 1) / clients:.6g}"
            )
    return found


def accountants(chosen: Sequence[str], everything: bool) -> list[str]:
    """Names as chosen, or the fast ones, or all of them."""
    from privplan.accounting.accountant import ACCOUNTANTS

    if chosen:
        return list(chosen)
    return list(ACCOUNTANTS) if everything else list(FAST)


def evaluated(
    mechanism: Mechanism, chosen: Sequence[str]
) -> tuple[list[CertificateRow], list[str], list[str]]:
    """Rows, notes on accountants without a row, and warnings."""
    from privplan.accounting.certificate import certify_all, disagreements

    rows, notes = certify_all(
        mechanism.history,
        group="all",
        delta=mechanism.delta,
        relation=mechanism.relation,
        accountants=chosen,
    )
    warnings = population_warnings(mechanism) + disagreements(rows)
    if any(row.accountant == "closed_form" for row in rows):
        from privplan.accounting.closed_form import failed_conditions

        failed = failed_conditions(mechanism.history, mechanism.delta, mechanism.relation)
        warnings += [f"closed_form is not a bound here: {line}" for line in failed]
    return rows, notes, warnings


def show(mechanism: Mechanism, rows: Sequence[CertificateRow], notes: Sequence[str]) -> None:
    """The table of rows, and a line for each accountant that has none."""
    from privplan.cli import render

    cells = []
    for row in rows:
        approximate = row.kind == "approximation"
        lower = "-" if row.epsilon_lower == 0 or approximate else f"{row.epsilon_lower:.6g}"
        upper = f"{'about ' if approximate else ''}{row.epsilon_upper:.6g}"
        role = "guarantee" if row.guarantee else row.kind
        cells.append([row.accountant, lower, upper, role, row.version])
    columns = ["accountant", "at least", "at most", "role", "version"]
    render.text(mechanism.title)
    render.table("", columns, cells)
    for note in notes:
        render.text(f"no row: {note}")


def population_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that every accounting command shares."""
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
    """The flags that describe a mechanism."""
    for option in (
        click.option("--rounds", type=int, required=True, help="Number of releases."),
        click.option("--sampling-ratio", type=float, help="Chance of a client in a round."),
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
def command(
    noise_multiplier: float,
    sampling_ratio: float | None,
    rounds: int,
    delta: float | None,
    sampling: str,
    relation: str,
    clients: int | None,
    form: str,
    chosen: tuple[str, ...],
    everything: bool,
) -> None:
    """Lower and upper bounds on epsilon side by side, and which one is the guarantee."""
    from privplan.cli import render

    mechanism = checked(
        noise_multiplier, sampling_ratio, rounds, delta, sampling, relation, clients
    )
    rows, notes, warnings = evaluated(mechanism, accountants(chosen, everything))
    if form == "json":
        render.data([row.model_dump(mode="json") for row in rows])
    else:
        show(mechanism, rows, notes)
        if not (chosen or everything):
            render.text("second opinions (prv, dp_accounting, opacus) with --all")
    for warning in warnings:
        render.warn(warning)
