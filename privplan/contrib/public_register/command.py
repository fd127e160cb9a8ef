"""``privplan report``: what was promised, whether it was kept, and how to check it, on one page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from privplan.cli import in_section, render


@in_section("verify")
@click.command("report", epilog="Example: privplan report run -o page.html")
@click.argument("source", metavar="PLAN|RUN|RESULTS")
@click.option("-o", "--output", metavar="FILE", help="File to write.  [html: report.html]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "json", "markdown"]),
    default="html",
    show_default=True,
    help="json and markdown have the fields of public registries.",
)
@click.option("--rounds", metavar="all|N|0", help="Rounds to execute again, as in verify.")
@click.option("--plan", metavar="PLAN", help="The plan that was approved, as in verify.")
@click.pass_context
def command(
    context: click.Context,
    source: str,
    output: str | None,
    form: str,
    rounds: str | None,
    plan: str | None,
) -> None:
    """One page on PLAN, RUN or RESULTS (of compare) for readers who read no code.

    It says what was promised to whom, whether it was kept and how strongly that was checked, what
    an attacker could do, what was not checked, and how to reproduce it. It needs no network.
    """
    from privplan.contrib.public_register.report import page, registry_report
    from privplan.errors import InputError
    from privplan.files import refuse_overwriting, write_text
    from privplan.plan import Plan
    from privplan.report.page import page_of
    from privplan.verification.verify import execute_again

    output = output or ("report.html" if form == "html" else None)
    read = [one for one in Path(source).rglob("*") if one.suffix != ".html"]
    refuse_overwriting([source, *read], [output])
    if form == "html":
        approved = () if plan is None else (Plan.load(plan),)
        again = lambda run, of: execute_again(run, rounds, of, context.meta)  # noqa: E731
        text = page_of(source, again, approved)
    elif plan is not None:
        raise InputError.one("plan", "is only for --format html", plan)
    else:
        report = registry_report(source)
        text = json.dumps(report, indent=1, allow_nan=False) + "\n"
        text = page(report) if form == "markdown" else text
    if output is not None:
        write_text(output, text)
        text = f"wrote {output}"
    render.text(text.rstrip("\n"))
