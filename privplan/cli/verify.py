"""``privplan verify``: what a run really spent, and whether it kept its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click


@click.command("verify", epilog="Example: privplan verify run")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def command(
    ctx: click.Context,
    run: Path,
    form: str,
) -> None:
    """Recompute what RUN (a run folder) spent from its ledger alone, and write the verdict.

    Exit code 0: kept. 4: broken; each failed check says why. 5: unverified: no check failed, but
    evidence is missing; each check that is not shown names it.
    """
    from privplan.cli import render
    from privplan.forecast.target import reached_line
    from privplan.record import ACCURACY
    from privplan.report import tables as verdicts
    from privplan.verification.verify import judge, load_run
    from privplan.witness import TRUSTED

    trusted = tuple(ctx.meta.get(TRUSTED, ()))
    loaded = load_run(run)
    verdict = judge(replace(loaded, trusted=trusted))
    verdict.save(run)
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
