"""``privplan lint``: what is wrong in a configuration of another framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from privplan.cli import in_section, render

if TYPE_CHECKING:
    from privplan.contrib.lint.reading import Findings


_COUNT = click.IntRange(1, 10**9)
_DELTA = click.FloatRange(1e-30, 1, max_open=True)


@in_section("tools")
@click.command(
    name="lint",
    short_help="What is wrong in a script or configuration of another framework.",
    epilog="Example: privplan lint train.py --of opacus --population 60000 --delta 1e-5",
)
@click.argument("file", metavar="CONFIG|SCRIPT")
@click.option(
    "--of",
    "framework",
    required=True,
    metavar="FRAMEWORK",
    help="flower, nvflare, opacus, pfl.",
)
@click.option(
    "--population", type=_COUNT, help="Clients (opacus: records) that may be drawn."
)
@click.option(
    "--rounds", type=_COUNT, help="Number of noisy releases (opacus: optimiser steps)."
)
@click.option("--delta", type=_DELTA, help="Failure probability, in (0, 1).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
)
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    framework: str,
    population: int | None,
    rounds: int | None,
    delta: float | None,
    form: str,
) -> None:
    """Read FILE without executing it, and say what is wrong; never that all is well.

    Exit codes: 0 nothing found, which is no guarantee; 6 alarms; 2 bad input.
    """
    from privplan.accounting.accountant import delta_warnings
    from privplan.contrib.lint.judge import lint
    from privplan.contrib.lint.reading import Options

    if delta is not None:
        for line in delta_warnings(delta, population, "unit"):
            render.warn(line)
    report = lint(file, framework, Options(population, rounds, delta))
    if form == "json":
        render.data(report.plain())
    else:
        _show(report, framework)
    ctx.exit(report.exit_code)


def _show(report: Findings, framework: str) -> None:
    for kind, alarms in (("ALARM", report.alarms), ("look at", report.look_at)):
        for alarm in alarms:
            place = f" (line {alarm.line})" if alarm.line else ""
            text = f"{kind} {alarm.code}{place}: {alarm.message}. Cost: {alarm.cost}"
            render.text(text)
    mechanism = report.mechanism
    if mechanism is None or not report.epsilon:
        render.text("epsilon: not determined")
    else:
        bounds = ", ".join(
            f"{bound} under {name}" for name, bound in report.epsilon.items()
        )
        render.text(
            f"if each of these is so: epsilon of a {mechanism.unit} <= {bounds} "
            f"(delta {mechanism.delta:g}, {mechanism.law} sampling, {report.accountant})"
        )
        for line in report.read:
            render.text(f"  {line}")
    for line in (*report.undetermined, *report.not_understood):
        render.text(f"  {line}")
    if not report.alarms:
        render.text("no alarm; this is no guarantee: run it under the guard")
        render.text(f"the guard's lines for {framework}: docs/lint.md")
