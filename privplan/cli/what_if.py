"""``privplan what-if``: how a plan changes with the numbers of its spec."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from privplan.cli import render


@click.command(name="what-if", help="Solve a spec with some of its numbers varied.")
@click.argument("spec", metavar="SPEC")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    required=True,
    metavar="PATH=FROM:TO:COUNT[:log]",
    help="A number of the spec, for example groups.strict.epsilon=0.1:2:20; may be repeated.",
)
@click.option("-o", "--output", metavar="FOLDER", help="Folder for table, plot and journal.")
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes.")
def command(spec: str, varied: tuple[str, ...], output: str | None, workers: int) -> None:
    """Sweep, then show the noise of every point."""
    from privplan.io.files import read_text, write_bytes
    from privplan.io.text import load_yaml
    from privplan.report.plots import sweep_picture
    from privplan.sensitivity.what_if import TABLE, InterruptedSweepError, parse_vary, sweep
    from privplan.spec.spec import Spec

    varies = [parse_vary(text) for text in varied]
    Spec.load(spec)
    data = load_yaml(read_text(spec, "spec"), "spec")
    if data.get("groups_from"):
        data["groups_from"] = str((Path(spec).parent / data["groups_from"]).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(output or scratch)
        try:
            with render.progress("what-if") as progress:
                rows = sweep(data, varies, folder, workers=workers, progress=progress)
        except KeyboardInterrupt:
            raise InterruptedSweepError(output) from None
        if output is not None:
            picture = sweep_picture(rows, [vary.path for vary in varies])
            write_bytes(folder / "what-if.png", picture)
    paths = [vary.path for vary in varies]
    shown: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = tuple(f"{row[path]:g}" for path in paths)
        said = row.get("error") or f"{row['noise_norm']:.4g}"
        weights = f"{row['group']} {row['weight']:.3f}" if "weight" in row else ""
        cells = shown.setdefault(key, [*key, said, ""])
        cells[-1] = ", ".join(part for part in (cells[-1], weights) if part)
    render.table("What if", [*paths, "noise of the mean, norm", "weights"], list(shown.values()))
    if output is not None:
        render.text(f"wrote {folder / TABLE} and {folder / 'what-if.png'}")
