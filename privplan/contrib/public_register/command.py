"""``privplan report``: what was promised, whether it was kept, and how to check it, on one page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from privplan.cli import in_section, render
from privplan.cli.judging import judging, judging_options, takes_options_of_verify
from privplan.errors import InputError


@in_section("verify")
@click.command("report", epilog="Example: privplan report run -o page.html")
@click.argument("source", metavar="PLAN|RUN|RESULTS")
@click.option(
    "-o", "--output", metavar="FILE", help="File to write.  [html: report.html]"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "json", "markdown"]),
    default="html",
    show_default=True,
    help="json and markdown have the fields of public registries.",
)
@judging_options
@click.pass_context
def command(
    context: click.Context,
    source: str,
    output: str | None,
    form: str,
    plan: Path | None,
    rounds: str | None,
    noise_key: Path | None,
) -> None:
    """One page on PLAN, RUN or RESULTS (of compare) for readers who read no code.

    It says what was promised to whom, whether it was kept and how strongly that was checked, what
    an attacker could do, what was not checked, and how to reproduce it. It needs no network.
    """
    from privplan.bundle import is_bundle
    from privplan.contrib.public_register.report import page, registry_report
    from privplan.files import refuse_overwriting, write_text
    from privplan.report.page import page_of

    if is_bundle(Path(source)):
        rule = (
            f"must be a plan, a run or results; of a bundle, privplan verify {source}"
        )
        raise InputError.one("report", rule, source)
    output = output or ("report.html" if form == "html" else None)
    read = [one for one in Path(source).rglob("*") if one.suffix != ".html"]
    refuse_overwriting([source, *read], [output])
    judged = judging(context, plan, rounds, noise_key)
    if form == "html":
        text = page_of(source, judged)
    else:
        report = registry_report(source, judged)
        text = json.dumps(report, indent=1, allow_nan=False) + "\n"
        text = page(report) if form == "markdown" else text
    if output is not None:
        write_text(output, text)
        text = f"wrote {output}"
    render.text(text.rstrip("\n"))


takes_options_of_verify(command)
