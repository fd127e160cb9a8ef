"""``python -m simulate.contrib.sensitivity``: tests of registered algorithms."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from privplan.cli import render
from privplan.cli.render import error
from privplan.errors import PrivplanError
from privplan.plan import Plan
from privplan.processes import exit_on_sigint
from simulate.algorithms.registry import ALGORITHMS
from simulate.contrib.sensitivity.neighbours import SensitivityReport
from simulate.contrib.sensitivity.sensitivity import check_sensitivity

BROKEN = 4
COLUMNS = (
    "algorithm",
    "plan",
    "unit",
    "rounds executed",
    "bounds compared",
    "largest",
    "result",
)


@click.command(
    "python -m simulate.contrib.sensitivity",
    help="Execute rounds of ALGORITHM (a registered name, or all) on neighbouring data "
    "sets.\n\nExit code 0: every difference is within its claimed bound, and no other "
    "output differs. 4: a claim does not hold; it is named. 2: bad input.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("algorithm")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    help="A solved plan for images of 8x8 pixels; else small plans of the kit.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.pass_context
def command(ctx: click.Context, algorithm: str, plan: Path | None, seed: int) -> None:
    """Execute rounds of an algorithm on neighbouring data sets."""
    try:
        if algorithm == "all":
            names = list(ALGORITHMS)
        else:
            names = [ALGORITHMS.name_of(algorithm)]
        plans = None if plan is None else {plan.name: Plan.load(plan)}
        reports: list[SensitivityReport] = []
        with render.progress("sensitivity tests") as progress:
            for done, name in enumerate(names):
                progress(done, len(names))
                reports += check_sensitivity(name, plans, seed=seed)
            progress(len(names), len(names))
    except PrivplanError as fault:
        error(str(fault))
        ctx.exit(fault.exit_code)
    caption = "largest: largest difference of releases over its claimed bound"
    render.table("sensitivity tests", COLUMNS, list(map(_row, reports)), caption)
    for report in reports:
        for violation in report.violations:
            render.text(f"{report.algorithm} ({report.plan}): {violation}")
    ctx.exit(0 if all(report.passed for report in reports) else BROKEN)


def _row(report: SensitivityReport) -> list[str]:
    if report.largest_ratio is None:
        largest = ""
    else:
        largest = f"{report.largest_ratio:.4f}"
    counts = [str(report.executions), str(report.compared)]
    result = "passed" if report.passed else "failed"
    return [report.algorithm, report.plan, report.unit, *counts, largest, result]


def run() -> None:
    """Run the command and exit; bad input is one line."""
    with exit_on_sigint():
        try:
            code = command(standalone_mode=False)
        except click.ClickException as fault:
            error(" ".join(fault.format_message().split()))
            code = PrivplanError.exit_code
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    run()
