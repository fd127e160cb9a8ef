"""``privplan algorithms``: the algorithms that can be trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from simulate.algorithms.entry import AlgorithmEntry

COLUMNS = ["algorithm", "unit of privacy", "released", "source", "hyperparameters"]


@click.command("algorithms", short_help="List the algorithms that can be trained.")
@click.option("--format", "form", type=click.Choice(["table", "json", "markdown"]), default="table")
def command(form: str) -> None:
    """List the algorithms: unit of privacy, releases, source and hyperparameters.

    Hyperparameters are chosen with --set NAME=NUMBER of simulate and compare.
    """
    from privplan.cli import render
    from simulate.algorithms.registry import ALGORITHMS

    entries = [entry for _, entry in ALGORITHMS.items()]
    if form == "json":
        render.data([_json(entry) for entry in entries])
    elif form == "markdown":
        rows = [COLUMNS, ["---"] * len(COLUMNS), *map(_row, entries)]
        render.text("\n".join(f"| {' | '.join(row)} |" for row in rows))
    else:
        caption = "unit none: nothing is protected, epsilon is infinite"
        rows = [_row(entry) for entry in entries]
        render.table(f"{len(entries)} algorithms", COLUMNS, rows, caption, words=True)


def _row(entry: AlgorithmEntry) -> list[str]:
    """The cells of an algorithm's row."""
    defaults = [f"{name}={one.default:g}" for name, one in entry.hyperparameters.items()]
    return [entry.name, entry.unit, entry.released, entry.source, ", ".join(defaults)]


def _json(entry: AlgorithmEntry) -> dict[str, Any]:
    """An algorithm as JSON."""
    return {
        "algorithm": entry.name,
        "unit": entry.unit,
        "released": entry.released,
        "source": entry.source,
        "hyperparameters": {
            name: {"default": one.default, "meaning": one.meaning}
            for name, one in entry.hyperparameters.items()
        },
    }
