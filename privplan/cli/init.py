"""``privplan init``: a commented spec to start from."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.cli import render
from privplan.errors import InputError
from privplan.io.files import write_text
from privplan.spec.presets import DEFAULT, PRESETS, preset


@click.command(name="init", help="Write a commented spec to start from.")
@click.option(
    "--preset",
    "name",
    metavar="NAME",
    help=f"One of: {', '.join(PRESETS)}; {DEFAULT} when left out.",
)
@click.option("-o", "--output", metavar="SPEC", help="File to write; standard output if left out.")
@click.option("--schema", is_flag=True, help="Write the JSON schema of a spec instead.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def command(name: str | None, output: str | None, schema: bool, force: bool) -> None:
    """Write a preset, or the schema."""
    if schema and name is not None:
        raise InputError.one("preset", "must be left out with --schema", name)
    text = _schema() if schema else preset(DEFAULT if name is None else name)
    if output is None:
        render.text(text.rstrip("\n"))
        return
    if Path(output).is_dir():
        raise InputError.one("output", "must be a file, not a folder", output)
    if Path(output).exists() and not force:
        raise InputError.one("output", "must not exist yet; --force replaces it", output)
    write_text(output, text)
    render.text(f"wrote {output}")


def _schema() -> str:
    import json

    from privplan.spec.spec import Spec

    return json.dumps(Spec.model_json_schema(), indent=1) + "\n"
