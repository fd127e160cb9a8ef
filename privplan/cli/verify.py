"""``privplan verify``: what a run really spent, and whether it kept its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click


@click.command("verify", epilog="Example: privplan verify run")
@click.argument("run", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--horizon",
    type=click.Path(),
    metavar="HORIZON",
    help="Judge all runs of this horizon as one composition.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def command(
    ctx: click.Context,
    run: tuple[Path, ...],
    horizon: str | None,
    form: str,
) -> None:
    """Recompute what RUN (a run folder) spent from its ledger alone, and write the verdict.

    With --horizon, several run folders of one horizon are judged together; nothing is written.

    Exit code 0: kept. 4: broken; each failed check says why. 5: unverified: no check failed, but
    evidence is missing; each check that is not shown names it.
    """
    from privplan.cli import render
    from privplan.errors import InputError
    from privplan.forecast.target import reached_line
    from privplan.record import ACCURACY
    from privplan.report import tables as verdicts
    from privplan.verification.verify import judge, load_run
    from privplan.witness import TRUSTED

    trusted = tuple(ctx.meta.get(TRUSTED, ()))
    if horizon is not None:
        ctx.exit(_horizon(horizon, run, trusted, form))
    if len(run) > 1:
        raise InputError.one("run", "must be one run folder without --horizon", len(run))
    loaded = load_run(run[0])
    verdict = judge(replace(loaded, trusted=trusted))
    verdict.save(run[0])
    if form == "json":
        render.data(verdict.model_dump(mode="json"))
    else:
        title = verdicts.run_name(verdict)
        rows, caption = verdicts.group_rows(verdict), verdicts.group_caption(verdict)
        render.table("checks", verdicts.CHECK_COLUMNS, verdicts.check_rows(verdict))
        render.table(title, verdicts.group_columns(verdict), rows, caption)
        if any(group.audit for group in verdict.groups):
            rows, caption = verdicts.audit_rows(verdict), verdicts.audit_caption(verdict)
            columns = verdicts.audit_columns(verdict)
            render.table("what canaries say", columns, rows, caption)
        render.text(verdicts.worst_line(verdict))
        if verdict.metric == ACCURACY:
            render.text(verdicts.class_line(verdict))
            reached = reached_line(loaded.plan, verdict.accuracy)
            if reached is not None:
                render.text(reached)
        initial = loaded.plan.spec.model.initial
        if initial is not None:
            render.text(initial.line)
        render.text(verdicts.evidence_line(verdict))
        render.text(verdicts.closing_line(verdict))
    ctx.exit(verdict.exit_code)


def _horizon(path: str, folders: tuple[Path, ...], trusted: tuple[object, ...], form: str) -> int:
    """Judge the runs of a horizon and show the verdict; returns the exit code."""
    from privplan.cli import render
    from privplan.planning.horizon import HorizonPlan
    from privplan.report import tables as verdicts
    from privplan.verification.horizon import judge_horizon
    from privplan.verification.verify import load_run

    planned = HorizonPlan.load(path)
    verdict = judge_horizon(planned, [replace(load_run(one), trusted=trusted) for one in folders])
    if form == "json":
        render.data(verdict.model_dump(mode="json"))
        return verdict.exit_code
    rows = [[one.run, one.model or "none of them", one.outcome] for one in verdict.runs]
    render.table("runs", ["run", "plan of the horizon", "verdict"], rows)
    columns, rows = verdicts.HORIZON_COLUMNS, verdicts.horizon_rows(verdict)
    render.table(f"horizon {planned.spec.name}", columns, rows, "all releases as one composition")
    if verdict.missing:
        render.text(f"not among the runs, so without a cost: {', '.join(verdict.missing)}")
    for fault in verdict.faults:
        render.text(f"BROKEN: {fault}")
    render.text(f"horizon {verdict.outcome}")
    return verdict.exit_code
