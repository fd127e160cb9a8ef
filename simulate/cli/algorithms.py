"""``privplan algorithms``: what there is to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from simulate.algorithms.entry import Entry


@click.command("algorithms", short_help="List the algorithms that can be trained.")
@click.option("--format", "form", type=click.Choice(["table", "json", "markdown"]), default="table")
def command(form: str) -> None:
    """List the algorithms: whom each protects, what leaves the clients, its source, its numbers.

    Numbers of a method are chosen with --set NAME=NUMBER of simulate and compare.
    """
    from privplan.cli import render
    from simulate.algorithms.registry import ALGORITHMS

    if form == "json":
        render.data([_entry(row) for row in ALGORITHMS.values()])
        return
    if form == "markdown":
        render.text(markdown())
        return
    rows = [
        [row.name, row.unit, row.released, row.source, _numbers(row)] for row in ALGORITHMS.values()
    ]
    columns = ["algorithm", "unit of privacy", "released", "source", "numbers"]
    caption = "unit none: nothing is protected, epsilon is infinite"
    render.table(f"{len(rows)} algorithms", columns, rows, caption, words=True)


def markdown() -> str:
    """The catalogue as a table for the docs."""
    from simulate.algorithms.registry import ALGORITHMS

    lines = [
        "| algorithm | unit of privacy | released | source | numbers |",
        "|---|---|---|---|---|",
    ]
    for row in ALGORITHMS.values():
        cells = [row.name, row.unit, row.released, row.source, _numbers(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _numbers(row: Entry) -> str:
    return ", ".join(f"{name}={number.default:g}" for name, number in row.numbers.items())


def _entry(row: Entry) -> dict[str, Any]:
    return {
        "algorithm": row.name,
        "unit": row.unit,
        "released": row.released,
        "source": row.source,
        "numbers": {
            name: {"default": number.default, "meaning": number.meaning}
            for name, number in row.numbers.items()
        },
    }
