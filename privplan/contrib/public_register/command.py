"""``privplan report``: the public report of a plan or run."""

from __future__ import annotations

import json

import click

from privplan.cli import in_section, render


@in_section("verify")
@click.command("report", epilog="Example: privplan report --registry run -o public")
@click.argument("source", metavar="RUN|PLAN")
@click.option("--registry", is_flag=True, required=True, help="With the fields of registries.")
@click.option("-o", "--output", metavar="NAME", help="Write NAME.json and NAME.md.")
@click.option(
    "--format", "form", type=click.Choice(["page", "json"]), default="page", show_default=True
)
def command(source: str, registry: bool, output: str | None, form: str) -> None:
    """The public report of RUN or PLAN.

    It states unit, relation, law, budgets per group, mechanism, adaptivity, what is not covered.
    """
    from privplan.contrib.public_register.report import page, registry_report
    from privplan.files import refuse_overwriting, write_text

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
