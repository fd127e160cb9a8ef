"""``privplan lint``: the true epsilon of a configuration of another framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from privplan.cli import in_section, render

if TYPE_CHECKING:
    from privplan.contrib.lint.judge import Report


@in_section("tools")
@click.command(
    name="lint",
    short_help="The true epsilon of a configuration of another framework.",
    epilog="Example: privplan lint train.py --of opacus --population 60000 --delta 1e-5",
)
@click.argument("file", metavar="CONFIG|SCRIPT|LOG")
@click.option("--of", required=True, metavar="FRAMEWORK", help="flower, nvflare, opacus, pfl.")
@click.option("--population", type=int, help="Clients (opacus: records) that may be drawn.")
@click.option("--rounds", type=int, help="Number of noisy releases (opacus: optimiser steps).")
@click.option("--delta", type=float, help="Failure probability, in (0, 1).")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    of: str,
    population: int | None,
    rounds: int | None,
    delta: float | None,
    form: str,
) -> None:
    """Read FILE without executing it: law, protection, epsilon beside the claim, known faults.

    Exit codes: 0 no alarm, 5 a value is not determined, 6 alarms, 2 bad input.
    """
    from privplan.contrib.lint.judge import lint
    from privplan.contrib.lint.reading import Options

    report = lint(file, of, Options(population, rounds, delta))
    if form == "json":
        render.data(report.plain())
    else:
        _show(report)
    ctx.exit(report.exit_code)


def _show(report: Report) -> None:
    from privplan.contrib.lint.judge import law_phrase

    for one in report.mechanisms:
        ratio = one.sampling_ratio
        drawn = "" if ratio is None else f", sampling ratio {ratio:.6g}"
        render.text(f"group {one.group}: {law_phrase(one.law)}{drawn}; unit: {one.unit}")
        render.text(f"  protects {one.protects}")
        noise = "not determined" if one.noise is None else f"{one.noise[0]:.6g}"
        if one.noise is not None and one.noise[0] != one.noise[1]:
            noise += f" to {one.noise[1]:.6g}"
        if one.known_epsilon is None:
            rounds = "not determined" if one.rounds is None else one.rounds
            render.text(f"  noise multiplier {noise}, rounds {rounds}")
    rows = [
        [row.group, str(row.relation), _number(row.delta), _number(row.lower), _number(row.upper)]
        for row in report.rows
    ]
    if rows:
        columns = ["group", "relation", "delta", "epsilon at least", "at most"]
        render.table("Epsilon as executed", columns, rows)
    if report.excluded:
        excluded = ", ".join(report.excluded)
        render.text(f"the upper bounds leave out the loss by {excluded}: none is known for it")
    for line in report.undetermined:
        render.text(f"not determined: {line}")
    for line in report.notes:
        render.text(f"note: {line}")
    for alarm in report.alarms:
        line = f" (line {alarm.line})" if alarm.line else ""
        render.text(f"ALARM {alarm.code}{line}: {alarm.message}")
    if not report.alarms:
        render.text("no alarm")


def _number(value: float | None) -> str:
    return "not determined" if value is None else f"{value:.6g}"
