"""``privplan book horizon``: plans of several models on the same people, and their verdict."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from privplan.contrib.horizons.plans import HorizonPlan
    from privplan.contrib.horizons.verdict import HorizonVerdict

COLUMNS = ("group", "budget", "planned", "realised upper", "delta", "verdict")
Table = tuple[str, list[str], list[list[str]], str]


@click.command("horizon", epilog="Example: privplan book horizon years.yaml -o years.json")
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("runs", metavar="[RUN...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(), help="Write the horizon, and a plan per run.")
@click.option("--verify", is_flag=True, help="Judge the run folders RUN as one composition.")
@click.option(
    "--second-opinion/--no-second-opinion", default=None, help="Certify with prv-accountant too."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    runs: tuple[Path, ...],
    output: str | None,
    verify: bool,
    second_opinion: bool | None,
    form: str,
) -> None:
    """Split budgets over several models that are trained on the same people.

    FILE is a spec with a block such as ``horizon: {runs: 4}``. With --verify it is the horizon
    that was written, and all releases of the runs are one composition; exit code 0: kept,
    4: broken, 5: unverified.

    Example: privplan book horizon years.yaml -o years.json
    """
    from privplan.errors import InputError

    if verify:
        ctx.exit(_verify(file, runs, form))
    if runs:
        raise InputError.one("run", "needs --verify", str(runs[0]))
    _solve(file, output, form, second_opinion)


def _solve(file: str, output: str | None, form: str, second_opinion: bool | None) -> None:
    """Solve the plans of all runs, write them beside the horizon, and show them."""
    from privplan.cli import render
    from privplan.contrib.horizons.models import read
    from privplan.contrib.horizons.plans import plan_path, solve_horizon
    from privplan.files import refuse_overwriting
    from privplan.planning.choices import NOT_TUNED
    from privplan.report.tables import certificate_table

    spec, horizon, sources = read(file)
    models = horizon.all_models()
    outputs = [output, *(str(plan_path(output, model)) for model in models)] if output else []
    refuse_overwriting(sources, outputs)
    planned = solve_horizon(spec, horizon, second_opinion=second_opinion)
    written = planned.save(output) if output is not None else []
    if form == "json":
        render.data(planned.plain())
    else:
        render.table(*_table(planned))
        over = "Certificate: epsilon over all rounds of all runs"
        render.table(over, *certificate_table(planned)[1:])
        render.text(NOT_TUNED)
        for one in written:
            render.text(f"wrote {one}")
    for warning in dict.fromkeys(line for plan in planned.plans for line in plan.warnings):
        render.warn(warning)


def _table(planned: HorizonPlan) -> Table:
    """Share, epsilons and noise of each run of a horizon."""
    names = [group.name for group in planned.spec.groups]
    rows = []
    for plan, share in zip(planned.plans, planned.shares, strict=True):
        norm = plan.noise_std * math.sqrt(plan.spec.model.parameters)
        epsilons = [f"{group.epsilon:.4g}" for group in plan.groups]
        sigmas = [f"{group.noise_multiplier:.4g}" for group in plan.groups]
        value = f"{plan.objective.value:.6g}"
        cells = [plan.spec.name, f"{share:.1%}", f"{plan.spec.rounds}", value, f"{norm:.4g}"]
        rows.append([*cells, " ".join(epsilons), " ".join(sigmas)])
    columns = ["run", "share", "rounds", "objective", "noise, norm", "epsilon of the run", "sigma"]
    caption = f"epsilon and sigma of {', '.join(names)}; a run's epsilon holds for that run only"
    return f"Horizon of {planned.spec.name}: {len(rows)} runs", columns, rows, caption


def _verify(file: str, folders: tuple[Path, ...], form: str) -> int:
    """Judge the runs of a horizon and show the verdict; returns the exit code."""
    from privplan.cli import render
    from privplan.contrib.horizons.plans import HorizonPlan
    from privplan.contrib.horizons.verdict import judge_horizon
    from privplan.errors import InputError
    from privplan.verification.verify import load_run

    if not folders:
        raise InputError.one("run", "must name the run folders to judge", "none")
    planned = HorizonPlan.load(file)
    verdict = judge_horizon(planned, [load_run(one) for one in folders])
    if form == "json":
        render.data(verdict.model_dump(mode="json"))
        return verdict.exit_code
    rows = [[one.run, one.model or "none of them", one.outcome] for one in verdict.runs]
    render.table("runs", ["run", "plan of the horizon", "verdict"], rows)
    title = f"horizon {planned.spec.name}"
    render.table(title, list(COLUMNS), _rows(verdict), "all releases as one composition")
    if verdict.missing:
        render.text(f"not among the runs, so without a cost: {', '.join(verdict.missing)}")
    for fault in verdict.faults:
        render.text(f"BROKEN: {fault}")
    render.text(f"horizon {verdict.outcome}")
    return verdict.exit_code


def _rows(verdict: HorizonVerdict) -> list[list[str]]:
    """One row per group over all runs, for ``COLUMNS``."""
    from privplan.report.tables import number

    return [
        [
            one.group,
            f"{one.budget:g}",
            number(one.planned),
            number(one.realised_upper),
            f"{one.delta:.3g}",
            "kept" if one.kept else "EXCEEDED",
        ]
        for one in verdict.groups
    ]
