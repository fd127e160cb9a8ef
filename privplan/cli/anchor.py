"""``privplan anchor``: the head of a run's signed statements in an external log."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("anchor")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--log", type=click.Path(path_type=Path), metavar="FILE", help="A local log file.")
@click.option("--tsa", metavar="ADDRESS", help="A time-stamping authority (RFC 3161).")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def command(run: Path, log: Path | None, tsa: str | None, form: str) -> None:
    """Put the head of RUN's signed statements into a log; the receipt goes to anchors.jsonl.

    The log should be out of reach of whoever can change the run folder.
    """
    from privplan.attestation.anchors import LocalLog, TimeStamps, anchor, post_to
    from privplan.cli import render
    from privplan.errors import InputError
    from privplan.plan import Plan
    from privplan.record import PLAN, refuse_other_folder

    if (log is None) == (tsa is None):
        given = "nothing" if log is None else "both"
        raise InputError.one("log", "exactly one of --log and --tsa must be given", given)
    refuse_other_folder(run)
    plan = Plan.load(run / PLAN)
    chosen = TimeStamps(post_to(tsa)) if tsa is not None else LocalLog(log or Path())
    made = anchor(run, plan, chosen)
    if form == "json":
        render.data({"run": str(run), "statements": made.statements, "head": made.head})
    else:
        render.text(f"anchored {made.statements} statements of {run}: head {made.head}")
