"""``python -m tests.sabotage``: every planted fault, and the check that names it."""

from itertools import chain
from pathlib import Path

import click

from simulate.cli.options import SEED

MISSED = 4


@click.command("sabotage")
@click.option(
    "--honest", "runs", type=click.IntRange(min=0), default=20, show_default=True,
    help="Runs that nobody broke, over the algorithms and sampling laws; all must pass.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(["table", "markdown"]), default="table", show_default=True
)
@click.option(
    "--canaries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Canaries per group, to see which of the faults outside tests/sabotage/kinds they find "
    "alone; each such run is made twice.",
)
@click.option("--seed", type=SEED, default=1, show_default=True, help="The first seed.")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Seeds per fault."
)
@click.option(
    "--replay/--no-replay",
    default=False,
    help="Execute runs again, with all rounds, whose fault declared evidence should not show.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of results, from which an interrupted command is resumed.",
)
@click.pass_context
def command(ctx, runs, form, canaries, seed, seeds, replay, jobs, journal):
    """Break real runs on the digits in every way that is known, and judge each.

    Exit code 0: each fault is detected by its check, or needs the level of evidence that the table
    names, and honest runs pass. 4: one is not.
    """
    from privplan.cli import render
    from tests.sabotage import COLLECTED, FAULTS, honest_runs
    from tests.sabotage.table import COLUMNS, HONEST, markdown, rows, summary
    from tests.sabotage.work import Task, results

    def task(fault, turn):
        asked = canaries if fault not in COLLECTED and not turn else 0
        return Task(fault.name, seed + turn, canaries=asked, replay=replay)

    broken = [[task(fault, turn) for turn in range(seeds)] for fault in FAULTS]
    honest = [Task(algorithm, own, sampling) for algorithm, sampling, own in honest_runs(runs)]
    tasks = [*chain.from_iterable(broken), *honest]
    with render.progress("faults and honest runs") as report:
        found = dict(zip(tasks, results(tasks, jobs, journal, report), strict=True))
    findings = [[one.finding(found[one]) for one in of_fault] for of_fault in broken]
    passed = sum(found[one]["kept"] for one in honest)
    honest_rows = [found[one]["row"] for one in honest]
    for title, columns, cells in (
        ("faults", COLUMNS, rows(findings)),
        ("honest runs", HONEST, honest_rows),
    ):
        if form == "markdown":
            render.text(markdown(columns, cells))
            render.text()
        else:
            render.table(title, columns, cells)
    right = sum(all(found.as_documented for found in of_seeds) for of_seeds in findings)
    render.text(f"{summary(findings)}; {passed} of {runs} honest runs kept")
    ctx.exit(0 if right == len(findings) and passed == runs else MISSED)


if __name__ == "__main__":
    command()
