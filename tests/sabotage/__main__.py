"""``python -m tests.sabotage``: every planted fault, and the check that names it."""

from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context

import click

from tests import sabotage
from tests.sabotage.table import (
    COLUMNS,
    HONEST,
    honest_row,
    markdown,
    rows,
    summary,
    write_csv,
)

MISSED = 4


def _found(task):
    """The finding of a fault by its name, or whether an honest run is kept, and its row."""
    name, seed, options = task
    if isinstance(options, str):
        verdict = sabotage.honest(name, options, seed)
        return verdict.kept, honest_row(seed, verdict)
    [fault] = [one for one in sabotage.FAULTS if one.name == name]
    canaries, replay = options
    return sabotage.tried(fault, seed, canaries, replay=replay)


@click.command("sabotage")
@click.option(
    "--honest", "runs", type=click.IntRange(min=0), default=20, help="Honest runs."
)
@click.option(
    "--canaries", type=click.IntRange(min=0), default=0,
    help="Canaries per group, to see which of the faults outside tests/sabotage/kinds they find.",
)  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=1, help="Seeds per fault.")
@click.option("--replay", is_flag=True, help="Execute runs of undeclared faults again.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Processes.")
@click.option("--table", type=click.Path(), help="CSV file for the rows of the faults.")
@click.pass_context
def command(ctx, runs, canaries, seeds, replay, jobs, table):
    """Break real runs on the digits in every way that is known, and judge each.

    Exit code 0: each fault is detected by its check, or needs the level of evidence that the table
    names, and honest runs pass. 4: one is not.
    """

    def task(fault, turn):
        asked = canaries if fault not in sabotage.COLLECTED and not turn else 0
        return fault.name, 1 + turn, (asked, replay)

    broken = [task(fault, turn) for fault in sabotage.FAULTS for turn in range(seeds)]
    tasks = chain(
        broken, ((name, own, law) for name, law, own in sabotage.honest_runs(runs))
    )
    if jobs == 1:
        found = [_found(one) for one in tasks]
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            found = list(pool.map(_found, tasks))
    findings = [found[at : at + seeds] for at in range(0, len(broken), seeds)]
    honest = found[len(broken) :]
    fault_rows = rows(findings)
    if table:
        write_csv(table, COLUMNS, fault_rows)
    click.echo(markdown(COLUMNS, fault_rows) + "\n")
    click.echo(markdown(HONEST, [row for _, row in honest]) + "\n")
    right = sum(all(one.as_documented for one in of_seeds) for of_seeds in findings)
    passed = sum(kept for kept, _ in honest)
    click.echo(f"{summary(findings)}; {passed} of {runs} honest runs kept")
    ctx.exit(0 if right == len(findings) and passed == runs else MISSED)


if __name__ == "__main__":
    command()
