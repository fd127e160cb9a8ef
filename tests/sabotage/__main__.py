"""``python -m tests.sabotage``: every planted fault, and the check that names it."""

from __future__ import annotations

import click

from simulate.cli.options import SEED

MISSED = 4


@click.command("sabotage")
@click.option(
    "--honest",
    "runs",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Runs that nobody broke, over the algorithms and sampling laws; all must pass.",
)
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
@click.pass_context
def command(
    ctx: click.Context, runs: int, form: str, canaries: int, seed: int, seeds: int, replay: bool
) -> None:
    """Break real runs on the digits in every way that is known, and judge each.

    Exit code 0: each fault is detected by its check, or needs the level of evidence that the table
    names, and honest runs pass. 4: one is not.
    """
    from privplan.cli import render
    from tests.sabotage import COLLECTED, FAULTS, honest, honest_runs, tried
    from tests.sabotage.table import COLUMNS, HONEST, honest_row, markdown, rows, summary

    findings, verdicts, total = [], [], len(FAULTS) + runs
    with render.progress("faults and honest runs") as report:
        for fault in FAULTS:
            report(len(findings), total)
            asked = canaries if fault not in COLLECTED else 0
            findings.append(
                [
                    tried(fault, seed + turn, 0 if turn else asked, replay=replay)
                    for turn in range(seeds)
                ]
            )
        for algorithm, sampling, own in honest_runs(runs):
            report(len(findings) + len(verdicts), total)
            verdicts.append((own, honest(algorithm, sampling, own)))
    passed = sum(verdict.kept for _, verdict in verdicts)
    honest_rows = [honest_row(own, verdict) for own, verdict in verdicts]
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
