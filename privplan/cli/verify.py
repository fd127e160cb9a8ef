"""``privplan verify``: what a run really spent, and whether it kept its plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from privplan.attestation.anchors import AnchorLog


@click.command("verify")
@click.argument("run", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--horizon",
    type=click.Path(),
    metavar="HORIZON",
    help="Judge all runs of this horizon as one composition.",
)
@click.option(
    "--anchor-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Log that holds anchored heads of signed statements.",
)
@click.option(
    "--tsa-certificate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Root certificate (PEM) of the authority that time-stamped heads.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def verify_command(
    ctx: click.Context,
    run: tuple[Path, ...],
    horizon: str | None,
    anchor_log: Path | None,
    tsa_certificate: Path | None,
    form: str,
) -> None:
    """Recompute what RUN (a run folder) spent from its ledger alone, and write the verdict.

    With --horizon, several run folders of one horizon are judged together; nothing is written.

    Exit code 0: kept. 4: broken; each failed check says why. 5: unverified: no check failed, but
    evidence is missing; each check that is not shown names it.
    """
    from privplan.attestation.anchors import LocalLog, TimeStamps
    from privplan.cli import render
    from privplan.errors import InputError
    from privplan.forecast.target import reached_line
    from privplan.record import ACCURACY
    from privplan.report import tables as verdicts
    from privplan.verification.verify import judge, load_run

    logs: list[AnchorLog] = []
    if anchor_log is not None:
        log = LocalLog(anchor_log)
        log.check()  # also where no anchor asks for it
        logs.append(log)
    if tsa_certificate is not None:
        logs.append(TimeStamps(certificates=tsa_certificate))
    if horizon is not None:
        ctx.exit(_horizon(horizon, run, tuple(logs), form))
    if len(run) > 1:
        raise InputError.one("run", "must be one run folder without --horizon", len(run))
    loaded = load_run(run[0])
    verdict = judge(replace(loaded, logs=tuple(logs)))
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


def _horizon(path: str, folders: tuple[Path, ...], logs: tuple[AnchorLog, ...], form: str) -> int:
    """Judge the runs of a horizon and show the verdict; returns the exit code."""
    from privplan.cli import render
    from privplan.planning.horizon import HorizonPlan
    from privplan.report import tables as verdicts
    from privplan.verification.horizon import judge_horizon
    from privplan.verification.verify import load_run

    planned = HorizonPlan.load(path)
    verdict = judge_horizon(planned, [replace(load_run(one), logs=logs) for one in folders])
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


# --- ``privplan report``: the public report of a plan or run. ------------------------------------


@click.command("report", help="The public report of a plan or run.")
@click.argument("source", metavar="RUN|PLAN")
@click.option("--registry", is_flag=True, required=True, help="With the fields of registries.")
@click.option("-o", "--output", metavar="NAME", help="Write NAME.json and NAME.md.")
@click.option(
    "--format", "form", type=click.Choice(["page", "json"]), default="page", show_default=True
)
def report_command(source: str, registry: bool, output: str | None, form: str) -> None:
    """State unit, relation, law, budgets per group, mechanism, adaptivity, what is not covered."""
    from privplan.cli import render
    from privplan.files import refuse_overwriting, write_text
    from privplan.report.registry import page, registry_report

    report = registry_report(source)
    text = json.dumps(report, indent=1, allow_nan=False)
    if output is not None:
        files = {f"{output}.json": text + "\n", f"{output}.md": page(report)}
        refuse_overwriting([source], list(files))
        for name, content in files.items():
            write_text(name, content)
            render.text(f"wrote {name}")
    elif form == "json":
        render.text(text)
    else:
        render.text(page(report).rstrip("\n"))
