"""``privplan book``: spent and remaining epsilon of groups over all runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    identity,
)
from privplan.book.entry import booking_of
from privplan.book.spending import full_name, proven_spendings, spendings
from privplan.cli import PROVE, SuggestingGroup, render
from privplan.cli.judging import judging, judging_options, takes_options_of_verify
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.processes import limited
from privplan.proven import lines as unproven_lines
from privplan.proven import plain, proof_program
from privplan.report.numbers import six
from privplan.report.spendings import cost_line, remaining_lines, spending_table

MOST_SECONDS = 10.0  # processor time of an answer to ``left``
RELATIONS = ("add_remove", "replace_one", "zero_out")
RULES = ("renyi", "gaussian", "exact")
NOISE = (
    "gaussian", "laplace", "discrete_laplace", "randomized_response", "discrete_gaussian_count",
)  # fmt: skip


@click.group(
    cls=SuggestingGroup,
    name="book",
    help="What groups have spent over all runs, and what is left.",
)
def book_command() -> None:
    """A ledger of ledgers; composition is exact, over all releases of all runs."""


def _address(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--address",
        metavar="BOOK",
        help="A file, or any SQLAlchemy address; PRIVPLAN_BOOK, or book.sqlite, when left out.",
    )(function)


@book_command.command(
    "add", epilog="Example: privplan book add run --population hospital"
)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--population", default="", metavar="NAME", help="Whose groups these are."
)
@click.option(
    "--infinite", is_flag=True, help="Book a broken run, too: at infinite epsilon."
)
@judging_options
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@_address
@click.pass_context
def add_run(
    context: click.Context,
    /,
    run: Path,
    population: str,
    infinite: bool,
    plan: Path | None,
    rounds: str | None,
    noise_key: Path | None,
    form: str,
    address: str | None,
) -> None:
    """Verify RUN (a run folder) as privplan verify does, and add it; once, however often.

    An unverified run is added at the cost that its evidence supports. Exit code 4: its verdict is
    broken, and nothing is added.
    """
    from privplan.book.database import address_of, shown
    from privplan.book.store import add

    judged = judging(context, plan, rounds, noise_key)
    booking = booking_of(run, population, infinite=infinite, judged=judged)
    url = address_of(address)
    added = add(url, booking)
    lines, groups = (
        booking.run.lines,
        ", ".join(share.group for share in booking.run.shares),
    )
    one = booking.run.shares[0]
    groups += f" ({identity(booking.run.plan, one.unit, one.relation)})"
    groups += f", {booking.run.checked}"
    outcomes = {
        "added": f"added {run}: {lines} releases of {groups}",
        "replaced": f"replaced {run}: {lines} releases of {groups}, {added.lines} before",
        "judged": f"judged {run} again: its {lines} releases are {booking.run.checked}",
        "known": f"nothing added: the book holds {run} already, all {lines} releases",
        "longer": f"nothing added: the book holds {added.lines} releases of {run}, not {lines}",
    }
    if form == "json":
        result = {"book": shown(url), "outcome": added.outcome, "lines": added.lines}
        render.data({**result, "run": booking.run.model_dump(mode="json")})
    else:
        render.text(f"{shown(url)}: {outcomes[added.outcome]}")
    if booking.run.verdict != "kept":
        render.warn(cost_line(booking.run))


takes_options_of_verify(add_run)


@book_command.command(
    "declare",
    epilog="Example: privplan book declare ages --group strict --clients 500 --noise laplace "
    "--noise-multiplier 14",
)
@click.argument("name", metavar="NAME")
@click.option(
    "--group", required=True, metavar="NAME", help="Whose data it was computed from."
)
@click.option(
    "--clients", type=int, required=True, help="Number of clients of the group."
)
@click.option("--population", default="", metavar="NAME", help="Whose group it is.")
@click.option(
    "--noise", "family", required=True, type=click.Choice(NOISE), help="Its law."
)
@click.option("--noise-multiplier", type=float, required=True, help="Of one release.")
@click.option(
    "--count", type=click.IntRange(1, 10**7), default=1, help="Number of such releases."
)
@click.option(
    "--relation", type=click.Choice(RELATIONS), default="add_remove", show_default=True
)
@click.option(
    "--delta",
    type=float,
    help="Of the group's budget; the smallest in the book counts.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@_address
def declare(
    name: str, family: str, noise_multiplier: float, count: int, form: str, address: str | None,
    **whose: Any,
) -> None:  # fmt: skip
    """Add a published statistic, NAME, on your word: no run or ledger shows it.

    It counts as released from everybody of the group. The noise multiplier of laplace,
    discrete_laplace and randomized_response is sqrt(2) / epsilon, else the standard deviation.
    """
    from privplan.book.book import Book

    release = Release(noise_multiplier, 1.0, SamplingLaw.FULL, family)
    book = Book(address)
    outcome = book.declare(name, History([(release, count)]), **whose)
    text = f"{family} noise {noise_multiplier:g}, {count} times, of {whose['group']}"
    text = text if outcome == "added" else "nothing added: the book holds it already"
    if form == "json":
        render.data({"book": book.address, "outcome": outcome, "name": name, **whose})
    else:
        render.text(f"{book.address}: {name}: {text} ({whose['relation']})")
        own = [run for run in book.runs if run.population == whose["population"]]
        if (
            sum(share.group == whose["group"] for run in own for share in run.shares)
            == 1
        ):
            render.text(f"nothing else in the book is of {whose['group']}")


@book_command.command("show", epilog="Example: privplan book show --group strict")
@click.option("--group", metavar="NAME", help="Only this group.")
@click.option("--population", metavar="NAME", help="Only this population.")
@click.option(
    "--delta", type=float, help="The smallest that a plan promised, when left out."
)
@click.option(
    "--relation",
    type=click.Choice(RELATIONS),
    help="Read all releases under this relation.",
)
@click.option("--prove", is_flag=True, help=PROVE)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@_address
def show(
    group: str | None,
    population: str | None,
    delta: float | None,
    relation: str | None,
    prove: bool,
    form: str,
    address: str | None,
) -> None:
    """What each group has spent: exact composition and naive sum, side by side."""
    from privplan.book.book import Book

    under = None if relation is None else Relation(relation)
    if prove:
        proof_program()
    runs = Book(address).runs
    with render.progress("composing") as progress:
        spent, faults = spendings(
            runs, group=group, population=population, delta=delta, relation=under,
            progress=progress,
        )  # fmt: skip
    findings = proven_spendings(runs, spent) if prove else {}
    if form == "json":
        proofs = {row["group"]: row for row in plain(findings)}
        rows = [one.model_dump(mode="json") for one in spent]
        for row in rows if prove else ():
            row["proven"] = proofs[full_name(row["population"], row["group"])]
        render.data(rows)
    elif spent:
        render.table(*spending_table(spent, findings))
        for line in unproven_lines(findings):
            render.text(line)
    if faults:
        raise InputError(faults)


@book_command.command(
    "left", epilog="Example: privplan book left --group strict --epsilon 4"
)
@click.option("--group", required=True, metavar="NAME", help="Whose budget.")
@click.option("--epsilon", type=float, required=True, help="The budget over all runs.")
@click.option(
    "--delta", type=float, help="The smallest that a plan promised, when left out."
)
@click.option("--population", default="", metavar="NAME", help="Whose group it is.")
@click.option(
    "--sampling-ratio", type=float, help="Of a next run; the last run's if left out."
)
@click.option("--rounds", type=int, help="Of a next run; the last run's if left out.")
@click.option(
    "--rule",
    type=click.Choice(RULES),
    help="renyi, gaussian: a next run may be chosen after seeing earlier ones (default, by the "
    "first run); exact: all runs were fixed before the first result.",
)
@click.option(
    "--relation",
    type=click.Choice(RELATIONS),
    help="Read all releases under this relation.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@_address
def remaining_budget(
    group: str,
    epsilon: float,
    relation: str | None,
    form: str,
    address: str | None,
    **asked: Any,
) -> None:
    """What is left of a budget: headroom, and the least noise of a next run.

    Exit code 3: more than the budget is spent already.
    """
    from privplan.book.book import Book

    under = None if relation is None else Relation(relation)
    limit = f"must be answerable within {MOST_SECONDS:g} s of processor time"
    with limited(
        MOST_SECONDS, InputError.one("epsilon, delta and rounds", limit, epsilon)
    ):
        result = Book(address).left(group, epsilon, relation=under, **asked)
    if form == "json":
        render.data(result.model_dump(mode="json"))
    else:
        for line in remaining_lines(result):
            render.text(line)


@book_command.command(
    "open",
    epilog="Example: privplan book open hospital/strict --epsilon 4 --delta 1e-5",
)
@click.argument("account", metavar="ACCOUNT")
@click.option("--epsilon", type=float, required=True, help="Budget over all runs.")
@click.option(
    "--delta", type=float, required=True, help="Its failure probability, in (0, 1)."
)
@click.option(
    "--rule",
    type=click.Choice(RULES[:2]),
    default="renyi",
    show_default=True,
    help="Runs may be chosen after seeing earlier ones; gaussian covers full participation only.",
)
@click.option(
    "--relation", type=click.Choice(RELATIONS), default="add_remove", show_default=True
)
@click.option("--typical", metavar="PLAN", help="A plan of a typical run of the group.")
@click.option(
    "--ceiling", "ceilings", multiple=True, metavar="ACCOUNT", help="Charged as well."
)
@_address
def open_account(
    account: str, typical: str | None, address: str | None, **budget: Any
) -> None:
    """Open a budget ACCOUNT: POPULATION/GROUP, or a ceiling for a site or a population."""
    from privplan.book.accounts import Budgets

    history = None
    if typical is not None:
        plan = Plan.load(typical)
        plan.refuse_in_book()
        history = plan.history(plan.group(account.rpartition("/")[2]))
    Budgets(address, existing=bool(budget["ceilings"])).open(
        account, typical=history, **budget
    )
    known = "epsilon {epsilon:g} at delta {delta:g} ({rule}, {relation})".format(
        **budget
    )
    render.text(f"opened {account}: {known}")


def _histories(plan: str, population: str, rounds: int | None = None) -> dict[str, Any]:
    """The account of each group of a plan with its releases, or those of the first rounds."""
    solved, found = Plan.load(plan), {}
    solved.refuse_in_book()
    for group in solved.groups:
        history = solved.history(group)
        if rounds is not None:
            law = solved.law_of(group).law
            most = law.rounds_for(history.rounds)
            if not 0 <= rounds <= most or len(history) != 1:
                rule = f"must be 0 to {most}, of a plan with equal rounds"
                raise InputError.one("rounds", rule, rounds)
            history = History((one, law.rounds_of_client(rounds)) for one, _ in history)
        found[full_name(population, group.name)] = history
    return found


@book_command.command(
    "reserve", epilog="Example: privplan book reserve plan.json --run spring"
)
@click.argument("plan", metavar="PLAN")
@click.option("--run", required=True, metavar="NAME", help="Name of the run.")
@click.option(
    "--population", default="", metavar="NAME", help="Whose groups these are."
)
@click.option("--expires-days", type=float, default=30.0, show_default=True)
@_address
def reserve(
    plan: str, run: str, population: str, expires_days: float, address: str | None
) -> None:
    """Reserve all releases of PLAN in the accounts of its groups, or nothing.

    Exit code 3: an account has too little left.
    """
    from privplan.book.accounts import DAY, Budgets

    charges = _histories(plan, population)
    budgets = Budgets(address, existing=True)
    render.text(budgets.reserve(run, charges, expires_in=expires_days * DAY))


@book_command.command(
    "commit",
    epilog="Example: privplan book commit RESERVATION --plan plan.json --rounds 30",
)
@click.argument("reservation", metavar="RESERVATION")
@click.option(
    "--plan", metavar="PLAN", help="With --rounds: the plan that was executed."
)
@click.option(
    "--rounds", type=int, help="Only so many rounds were released; the rest returns."
)
@click.option(
    "--population", default="", metavar="NAME", help="Whose groups these are."
)
@_address
def commit(
    reservation: str,
    plan: str | None,
    rounds: int | None,
    population: str,
    address: str | None,
) -> None:
    """Spend a RESERVATION and end it: all of it, or the first rounds of a plan."""
    from privplan.book.accounts import Budgets

    if (plan is None) != (rounds is None):
        raise InputError.one(
            "plan and rounds", "must be given both or neither", plan or rounds
        )
    charges = None if plan is None else _histories(plan, population, rounds)
    Budgets(address, existing=True).commit(reservation, charges)
    render.text(f"committed {reservation}")


@book_command.command("budgets", epilog="Example: privplan book budgets --format json")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@_address
def budgets(form: str, address: str | None) -> None:
    """All accounts: budget, spent, reserved."""
    from privplan.book.accounts import Budgets, has_accounts

    states = Budgets(address).states() if has_accounts(address) else []
    if form == "json":
        render.data([asdict(one) for one in states])
        return
    columns = ["account", "rule", "budget", "delta", "spent", "with reservations"]
    rows = [
        [
            s.name,
            s.rule,
            f"{s.epsilon:g}",
            f"{s.delta:.4g}",
            six(s.spent),
            six(s.committed),
        ]
        for s in states
    ]
    render.table("Budgets", columns, rows)
