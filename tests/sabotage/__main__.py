"""``python -m tests.sabotage``: every planted fault, and the check that names it."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import click

from tests import sabotage
from tests.sabotage.table import (
    COLUMNS,
    HONEST,
    honest_row,
    is_as_documented,
    markdown,
    rows,
    summary,
    write_csv,
)

MISSED = 4


def _judged_fault(task):
    """The finding of a fault, which is sent to another process by its name."""
    name, seed, canaries, replay = task
    [fault] = [fault for fault in sabotage.FAULTS if fault.name == name]
    return sabotage.tried(fault, seed, canaries, replay=replay)


def _judged_honest_run(task):
    """Whether an honest run is kept, and its row."""
    name, law, seed = task
    verdict = sabotage.honest(name, law, seed)
    return verdict.kept, honest_row(seed, verdict)


@click.command("sabotage")
@click.option(
    "--honest", "runs", type=click.IntRange(min=0), default=20, help="Honest runs."
)
@click.option(
    "--canaries",
    type=click.IntRange(min=0),
    default=0,
    help="Canaries per group: which faults outside of kinds they find.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=1, help="Seeds per fault.")
@click.option("--replay", is_flag=True, help="Execute runs of undeclared faults again.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Processes.")
@click.option("--table", type=click.Path(), help="CSV file for the rows of the faults.")
@click.pass_context
def command(ctx, runs, canaries, seeds, replay, jobs, table):
    """Break real runs on the digits in every way that is known, and judge each.

    Exit code 0: each fault is detected by its check, or needs the level of evidence
    that the table names, and honest runs pass. 4: one is not.
    """

    # The tasks of a fault follow each other, one for each seed. Canaries are searched
    # for with the first seed only.
    tasks = []
    for fault in sabotage.FAULTS:
        num_canaries = 0 if fault in sabotage.COLLECTED else canaries
        tasks.append((fault.name, 1, num_canaries, replay))
        tasks += [(fault.name, seed, 0, replay) for seed in range(2, seeds + 1)]

    honest_tasks = sabotage.honest_runs(runs)
    if jobs == 1:
        results = list(map(_judged_fault, tasks))
        honest = list(map(_judged_honest_run, honest_tasks))
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            results = list(pool.map(_judged_fault, tasks))
            honest = list(pool.map(_judged_honest_run, honest_tasks))
    findings = [results[start : start + seeds] for start in range(0, len(tasks), seeds)]

    fault_rows = rows(findings)
    if table:
        write_csv(table, COLUMNS, fault_rows)
    click.echo(markdown(COLUMNS, fault_rows) + "\n")
    click.echo(markdown(HONEST, [row for _, row in honest]) + "\n")

    as_documented = sum(map(is_as_documented, findings))
    passed = sum(is_kept for is_kept, _ in honest)
    click.echo(f"{summary(findings)}; {passed} of {runs} honest runs kept")
    ctx.exit(0 if as_documented == len(findings) and passed == runs else MISSED)


if __name__ == "__main__":
    command()
