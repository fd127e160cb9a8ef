"""``privplan compare``: train several algorithms under a plan, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulate.cli.options import SEED, data_options, request_of, seeds_from

if TYPE_CHECKING:
    from simulate.runs.compare import ComparisonRow


@click.command("compare")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--algorithms", required=True, help="Names with commas between, or all.")
@data_options
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--first-seed", type=SEED, default=0, show_default=True)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Runs at a time: 1 if left out; as many as a cluster has cores for.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Spread the runs over a Ray cluster: auto, local, or its address. The output and the "
    "data must be on storage that all its machines see.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"))
def command(
    plan: Path,
    algorithms: str,
    seeds: int,
    first_seed: int,
    jobs: int | None,
    cluster: str | None,
    output: Path,
    **options: Any,
) -> None:
    """Train ALGORITHMS under PLAN with several seeds: a table, a CSV file and a plot.

    Each run has its own folder; finished runs are reused and interrupted ones resumed.
    """
    from privplan.cli import render
    from simulate.runs.compare import PLOT, TABLE, chosen, compare, left_out

    base = request_of(plan, "", output, options)
    asked = _written(algorithms)
    names = chosen(asked, base)
    for line in left_out(asked, base):
        render.warn(line)
    with render.progress(f"{len(names)} algorithms, {seeds} seeds") as report:
        entries = compare(base, names, seeds_from(first_seed, seeds), jobs, report, cluster)
    where = f"{base.plan.spec.name} on {base.dataset}, {base.partition}"
    rows = [_row(entry) for entry in entries]
    render.table(
        f"{where}: test accuracy, {seeds} seeds", _columns(entries[0]), rows, _caption(entries)
    )
    render.text(f"table {output / TABLE}, plot {output / PLOT}")


def _written(algorithms: str) -> str:
    """The names without empty ones; ``all`` among them stands for all of them."""
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    return "all" if "all" in map(str.lower, names) else ",".join(names)


def _groups(entry: ComparisonRow) -> list[str]:
    return [group.group for group in entry.verdicts[0].groups]


def _columns(entry: ComparisonRow) -> list[str]:
    groups = _groups(entry)
    accuracies = [f"{name} acc." for name in groups]
    return [
        "algorithm",
        "unit",
        "mean",
        "sd",
        *accuracies,
        *(f"{name} epsilon" for name in groups),
        "kept",
    ]


def _row(entry: ComparisonRow) -> list[str]:
    groups = _groups(entry)
    spent = [entry.spent(name) for name in groups]
    kept = sum(verdict.kept for verdict in entry.verdicts)
    return [
        entry.algorithm,
        entry.unit,
        f"{100 * entry.mean:.2f}",
        f"{100 * entry.deviation:.2f}",
        *(f"{100 * entry.accuracy_of(name):.2f}" for name in groups),
        *("inf" if value is None else f"{value:.4f}" for value in spent),
        f"{kept}/{len(entry.verdicts)}",
    ]


def _caption(entries: Sequence[ComparisonRow]) -> str:
    """Delta, law, relation and accountant of every epsilon; records may have another law."""
    said: dict[str, set[str]] = {}
    for entry in entries:
        for group in entry.verdicts[0].groups:
            law = f"{group.sampling} sampling, {group.relation} neighbours, {group.accountant}"
            said.setdefault(f"delta {group.delta:.3g}, {law}", set()).add(entry.unit)
    lines = [f"{words} (unit {', '.join(sorted(units))})" for words, units in said.items()]
    return (
        f"epsilon: largest realised upper bound at {'; '.join(lines)}; unit: whom the budget "
        "protects, clients or single records; kept: verdicts"
    )
