"""The steps of ``privplan compare``: choose, train, show, say what is spent, book."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from privplan.cli import render
from privplan.forecast.target import reached_line
from privplan.record import ACCURACY
from simulate.cli.options import refuse_unused_aggregation
from simulate.cli.replay import OPTIONS, given_again
from simulate.runs.compare import compare, request_for, select
from simulate.runs.leader import answer, units_apart
from simulate.runs.recipes import with_recipes
from simulate.runs.request import Request
from simulate.runs.rows import ComparisonRow
from simulate.runs.tables import counted, finished_line, printed_table, setup_table
from simulate.runs.together import Spending, planned, recorded
from simulate.runs.tune import tuned_comparison

Values = dict[str, dict[str, Any]]
"""What each method trains with where it was tuned, by its name."""


def chosen_methods(
    base: Request, algorithms: str, recipe: str | None, *, one_unit: bool
) -> dict[str, Request]:
    """The requests of the methods, by name of their rows; warns of those left out.

    Args:
        base: the request of the comparison.
        algorithms: names with commas between, or all.
        recipe: ``published``, ``ours`` or ``both``; None for each method's own way.
        one_unit: whether all methods have the unit of the plan.
    """
    names, omitted = select(algorithms, base, one_unit=one_unit)
    refuse_unused_aggregation(base.plan, names)
    for line in omitted:
        render.warn(line)
    requests, omitted = with_recipes(base, names, recipe)
    for line in omitted:
        render.warn(line)
    return requests


def trained(
    base: Request,
    requests: Mapping[str, Request],
    seeds: Sequence[int],
    trials: int,
    jobs: int,
) -> tuple[list[ComparisonRow], Values | None]:
    """The rows, and the values that were tuned, by name; tells of each finished row.

    Args:
        base: the request of the comparison.
        requests: of the methods, by name of their rows.
        seeds: of the runs of each method.
        trials: runs of each method that tune it; 0 where no method is tuned.
        jobs: processes.
    """

    def status(row: ComparisonRow) -> None:
        render.status(finished_line(row))

    names = list(requests)
    title = f"{counted(len(names), 'algorithm')}, {counted(len(seeds), 'seed')}"
    if trials:
        with render.progress(f"{title}, {trials} runs each to tune") as report:
            return tuned_comparison(base, names, seeds, trials, jobs, report, status)
    with render.progress(title) as report:
        return compare(base, names, seeds, jobs, report, requests, status), None


def show(
    form: str,
    base: Request,
    seeds: Sequence[int],
    rows: list[ComparisonRow],
    values: Values | None,
) -> None:
    """Print the rows as JSON, or which method leads and the tables."""
    if form == "json":
        lines: list[dict[str, object]] = []
        for row in rows:
            lines += row.plain()
        render.data(lines)
        return
    for line in answer(rows):
        render.text(line)
    metric = rows[0].metric
    setting = f"{base.plan.spec.name} on {base.dataset}, {base.partition_name}"
    for whose, members in units_apart(rows).items():
        title = f"{whose}{setting}: test {metric}, {counted(len(seeds), 'seed')}"
        render.table(*printed_table(title, members, values))
    render.table(*setup_table(rows))
    # The forecast is of the plan's own recipe, and of accuracy.
    if values is not None or metric != ACCURACY:
        return
    for row in rows:
        reached = reached_line(base.plan, row.mean, base.dataset)
        if row.algorithm == "planned" and reached is not None:
            render.text(f"planned: {reached}")


def all_spent(
    requests: Mapping[str, Request], seeds: Sequence[int], trials: int
) -> Iterator[Spending]:
    """What all finished runs have spent: by their ledgers, or by plan if they tuned."""
    yield from recorded(requests, seeds)
    if trials:
        # The runs that tuned have left no ledger.
        for spending in planned(requests, seeds, trials):
            yield spending._replace(runs=trials)


def add_to_book(
    book: str, base: Request, names: Iterable[str], seeds: Sequence[int]
) -> None:
    """Add all runs to a budget book, each judged with the data of the comparison."""
    from privplan.book.database import address_of, shown
    from privplan.book.entry import booking_of
    from privplan.book.store import add
    from privplan.verification.verify import judge

    judged = partial(judge, options={OPTIONS: given_again(base)})
    address = address_of(book)
    runs = 0
    for name in names:
        for seed in seeds:
            folder = request_for(base, name, seed).folder
            add(address, booking_of(folder, "", judged=judged))
            runs += 1
    render.status(f"{shown(address)}: holds all {counted(runs, 'run')}")
