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
from privplan.book.entry import BookedRun, booking_of
from privplan.book.spending import full_name, proven_spendings, spendings
from privplan.cli import PROVE, SuggestingGroup, render
from privplan.cli.judging import judging, judging_options, takes_options_of_verify
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.processes import limited
from privplan.proven import lines as unproven_lines
from privplan.proven import plain, proof_program
from privplan.record import RunRecord, run_folder
from privplan.report.numbers import six
from privplan.report.spendings import cost_line, remaining_lines, spending_table

# Processor time of an answer to ``left``.
MOST_SECONDS = 10.0
RELATIONS = ("add_remove", "replace_one", "zero_out")
RULES = ("renyi", "gaussian", "exact")
NOISE = (
    "gaussian",
    "laplace",
    "discrete_laplace",
    "randomized_response",
    "discrete_gaussian_count",
)


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
        help="A file, or any SQLAlchemy address; PRIVPLAN_BOOK, or book.sqlite, when "
        "left out.",
    )(function)


@book_command.command(
    "add",
    epilog="Example: privplan book add run --population hospital",
    help="Verify RUN (a run folder) as privplan verify does, and add it; once, however "
    "often.\n\nAn unverified run is added at the cost that its evidence supports. Exit "
    "code 4: its verdict is broken, and nothing is added.",
)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--population", default="", metavar="NAME", help="Whose groups these are."
)
@click.option(
    "--infinite", is_flag=True, help="Book it at infinite epsilon, also a broken run."
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
    """Verify a run and add it to the book."""
    from privplan.book.database import address_of, shown
    from privplan.book.store import add

    judged = judging(context, plan, rounds, noise_key)
    booking = booking_of(run, population, infinite=infinite, judged=judged)
    url = address_of(address)
    added = add(url, booking)
    booked = added.run
    if form == "json":
        result = {"book": shown(url), "outcome": added.outcome, "lines": added.lines}
        render.data({**result, "run": booked.model_dump(mode="json")})
    else:
        line = _outcome_line(run, booked, added.outcome, added.lines)
        render.text(f"{shown(url)}: {line}")
    if booked.verdict != "kept" or booked.cost != "recorded":
        render.warn(cost_line(booked))
    is_new = added.outcome == "added"
    if is_new and not RunRecord.load(run_folder(run)).is_on_own_data:
        data = booked.dataset
        render.warn(
            f"{run} is a simulation on the public data {data}: it protected nobody, and "
            "is booked as if the people of its groups had taken part"
        )


def _outcome_line(path: Path, run: BookedRun, outcome: str, booked_lines: int) -> str:
    """What became of a run that was to be added.

    Args:
        path: of the run folder.
        run: as the book has it now.
        outcome: of adding it.
        booked_lines: releases of it that the book had before.
    """
    lines = f"{run.lines} releases"
    share = run.shares[0]
    names = ", ".join(share.group for share in run.shares)
    groups = f"{names} ({identity(run.plan, share.unit, share.relation, run.person)})"
    groups += f", {run.checked}"
    outcomes = {
        "added": f"added {path}: {lines} of {groups}",
        "replaced": f"replaced {path}: {lines} of {groups}, {booked_lines} before",
        "judged": f"judged {path} again: its {lines} are {run.checked}",
        "known": f"nothing added: the book holds {path} already, all {lines}",
        "longer": f"nothing added: the book holds {booked_lines} releases of {path}, "
        f"not {run.lines}",
    }
    return outcomes[outcome]


takes_options_of_verify(add_run)


@book_command.command(
    "declare",
    epilog="Example: privplan book declare ages --group strict --clients 500 --noise "
    "laplace --noise-multiplier 14",
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
    name: str,
    family: str,
    noise_multiplier: float,
    count: int,
    form: str,
    address: str | None,
    **whose: Any,
) -> None:
    """Add a published statistic, NAME, on your word: no run or ledger shows it.

    It counts as released from everybody of the group. The noise multiplier of laplace,
    discrete_laplace and randomized_response is sqrt(2) / epsilon, else the standard
    deviation.
    """
    from privplan.book.book import Book

    release = Release(noise_multiplier, 1.0, SamplingLaw.FULL, family)
    book = Book(address)
    outcome = book.declare(name, History([(release, count)]), **whose)
    group = whose["group"]
    if form == "json":
        render.data({"book": book.address, "outcome": outcome, "name": name, **whose})
        return
    text = "nothing added: the book holds it already"
    if outcome == "added":
        text = f"{family} noise {noise_multiplier:g}, {count} times, of {group}"
    render.text(f"{book.address}: {name}: {text} ({whose['relation']})")
    # With the one that was just added.
    releases = 0
    for run in book.runs:
        if run.population == whose["population"]:
            releases += sum(share.group == group for share in run.shares)
    if releases == 1:
        render.text(f"nothing else in the book is of {group}")


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

    if prove:
        proof_program()
    runs = Book(address).runs
    with render.progress("composing") as progress:
        spent, faults = spendings(
            runs,
            group=group,
            population=population,
            delta=delta,
            relation=None if relation is None else Relation(relation),
            progress=progress,
        )
    findings = proven_spendings(runs, spent) if prove else {}
    if form == "json":
        proofs = {row["group"]: row for row in plain(findings)}
        rows = [spending.model_dump(mode="json") for spending in spent]
        if prove:
            for row in rows:
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
    help="renyi, gaussian: a next run may be chosen after seeing earlier ones (default, "
    "by the first run); exact: all runs were fixed before the first result.",
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
    **next_run: Any,
) -> None:
    """What is left of a budget: headroom, and the least noise of a next run.

    Exit code 3: more than the budget is spent already.
    """
    from privplan.book.book import Book

    book = Book(address)
    under = None if relation is None else Relation(relation)
    rule = f"must be answerable within {MOST_SECONDS:g} s of processor time"
    too_long = InputError.one("epsilon, delta and rounds", rule, epsilon)
    with limited(MOST_SECONDS, too_long):
        result = book.left(group, epsilon, relation=under, **next_run)
    if form == "json":
        render.data(result.model_dump(mode="json"))
    else:
        for line in remaining_lines(result):
            render.text(line)


@book_command.command(
    "open",
    epilog="Example: privplan book open hospital/strict --epsilon 4 --delta 1e-5",
    help="Open a budget ACCOUNT: POPULATION/GROUP, or a ceiling for a site or a "
    "population.",
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
    help="Runs may be chosen after seeing earlier ones; gaussian covers full "
    "participation only.",
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
    """Open a budget of a group, or a ceiling."""
    from privplan.book.accounts import Budgets

    history = None
    if typical is not None:
        plan = Plan.load(typical)
        plan.refuse_in_book()
        history = plan.history(plan.group(account.rpartition("/")[2]))
    budgets = Budgets(address, existing=bool(budget["ceilings"]))
    budgets.open(account, typical=history, **budget)
    promise = "epsilon {epsilon:g} at delta {delta:g} ({rule}, {relation})"
    render.text(f"opened {account}: {promise.format(**budget)}")


def _histories(
    plan: Plan, population: str, rounds: int | None = None
) -> dict[str, Any]:
    """The account of each group of a plan with its releases.

    Args:
        plan: the plan.
        population: whose groups these are.
        rounds: how many of them count, the first ones; all when None.
    """
    plan.refuse_in_book()
    if plan.unit != "client":
        rule = "must be client in a book's accounts, which count what clients spend"
        raise InputError.one("unit", rule, plan.unit)
    by_account = {}
    for group in plan.groups:
        history = plan.history(group)
        if rounds is not None:
            law = plan.law_of(group).law
            planned = law.rounds_for(history.rounds)
            if not 0 <= rounds <= planned or len(history) != 1:
                rule = f"must be 0 to {planned}, of a plan with equal rounds"
                raise InputError.one("rounds", rule, rounds)
            count = law.rounds_of_client(rounds)
            history = History((release, count) for release, _ in history)
        by_account[full_name(population, group.name)] = history
    return by_account


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

    solved = Plan.load(plan)
    charges = _histories(solved, population)
    budgets = Budgets(address, existing=True)
    relation = solved.spec.relation
    for account in charges:
        state = budgets.state(account)
        if state.relation != relation:
            rule = f"must be {state.relation}, that of the account {account}"
            raise InputError.one("relation", rule, relation)
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
        rule = "must be given both or neither"
        raise InputError.one("plan and rounds", rule, plan or rounds)
    charges = None
    if plan is not None:
        charges = _histories(Plan.load(plan), population, rounds)
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
        render.data([asdict(state) for state in states])
        return
    columns = ["account", "rule", "relation", "budget", "delta", "spent"]
    columns += ["with reservations"]
    rows = [
        [
            state.name,
            state.rule,
            state.relation,
            f"{state.epsilon:g}",
            f"{state.delta:.4g}",
            six(state.spent),
            six(state.committed),
        ]
        for state in states
    ]
    render.table("Budgets", columns, rows)
