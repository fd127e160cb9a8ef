"""``privplan check-data``: show how own data are understood."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section
from simulate.cli.options import (
    FORMAT,
    own_data_of,
    own_data_options,
    own_model_of,
    own_model_options,
)

if TYPE_CHECKING:
    from simulate.data.own import Data

MOST_LINES = 20  # most classes that are listed


@in_section("data")
@click.command(
    "check-data",
    short_help="Show how own data are understood.",
    epilog="Example: privplan check-data patients.csv --label ill --client patient --group unit "
    "--statistics statistics.json",
)
@click.argument("source", metavar="DATA", required=False)
@click.option("--data", "stated", metavar="DATA", help="The same as the argument.")
@own_data_options
@click.option(
    "--plan", type=click.Path(path_type=Path), help="Plan that the data must fit."
)
@own_model_options
@FORMAT
def command(
    source: str | None,
    stated: str | None,
    plan: Path | None,
    model: str | None,
    model_args: str | None,
    fix: bool,
    form: str,
    **options: Any,
) -> None:
    """Show records, inputs, classes, clients and groups of DATA, as simulate --data reads it.

    DATA is FILE.npz, FILE.csv, FILE.parquet, a folder of images, or package.module:function. Its
    clients per group and the parameters of --model, which is tried on it, belong in a spec. With
    --plan, data that do not have the plan's clients in each group are refused. These numbers are
    not private.
    """
    from privplan.cli import render
    from privplan.plan import Plan

    own = own_model_of(model, model_args, fix=fix)
    if source is not None and stated is not None:
        raise click.UsageError("DATA is given as an argument and by --data.")
    source = source or stated
    if source is None and own is None:
        raise click.UsageError("Missing argument 'DATA'.")
    data = None if source is None else own_data_of(source, options)
    parameters = None
    if own is not None:
        own.check(data)
        parameters = own.parameters()
    loaded = None if plan is None else Plan.load(plan)
    found: dict[str, Any] = {} if data is None else _understood(data)
    if data is not None:
        fits = None if loaded is None else data.prepared(loaded.groups)[0]
        found["plan"] = None if loaded is None else loaded.spec.name
        found["unit"] = None if loaded is None else loaded.unit
    if form == "json":
        render.data({**found, "parameters": parameters})
        return
    if data is not None:
        kind = {"torch.uint8": "bytes", "torch.float32": "floating point"}
        kept = kind.get(str(data.records.dtype), "token ids")
        shape = f"{'x'.join(map(str, data.shape))} ({kept})"
        tested = "" if data.test is None else f" and {found['testing']} test records"
        render.text(
            f"data: {data.name}, {len(data.records)} records{tested} of shape {shape}"
        )
        if data.test is None:
            shares = f"{found['training']} for training, {found['testing']} for testing"
            render.text(
                f"split: {shares} (--test-share of each client's, --test for your own)"
            )
        render.text(_labels(data, found["classes"]))
        if data.clients is None:
            render.text(
                "clients: not named; --partition assigns the records to the plan's clients"
            )
        else:
            several = "give a person one name: for k clients of one person only k epsilon holds"
            render.text(
                f"unit: a client, with all its records, or a record, as planned; {several}"
            )
        for name, group in sorted(found["groups"].items()):
            least = f"records: at least {group['least_records']} per client"
            render.text(f"group {name}: {group['clients']} clients, {least}")
    if own is not None:
        render.text(f"model: {own.label}, parameters: {parameters}")
    if loaded is not None and data is not None and fits is not None:
        render.text(
            f"plan: fits {loaded.spec.name} ({loaded.identity}); "
            f"{len(fits.train_y)} records for training, {len(fits.test_y)} for testing"
        )


def _labels(data: Data, counts: dict[str, int] | None) -> str:
    """What the labels are, one line."""
    if counts is None:
        assert data.targets is not None
        shape = "x".join(map(str, data.targets.shape[1:])) or "1"
        values = f"{float(data.targets.min()):.4g} to {float(data.targets.max()):.4g}"
        return f"task: {data.task}, {shape} targets per record, {values}"
    shown = ", ".join(
        f"{name} {count}" for name, count in [*counts.items()][:MOST_LINES]
    )
    more = f", and {len(counts) - MOST_LINES} more" if len(counts) > MOST_LINES else ""
    return f"classes: {len(counts)} (records of each: {shown}{more})"


def _understood(data: Data) -> dict[str, Any]:
    """What was understood, as plain data."""
    import numpy as np

    classes: dict[str, int] | None = None
    if data.targets is None:
        names = data.class_names()
        counts = np.bincount(data.labels(names), minlength=len(names)).tolist()
        classes = dict(zip(map(str, names), counts, strict=True))
    groups: dict[str, dict[str, int]] = {}
    if data.clients is not None:
        clients, sizes = np.unique(data.clients, return_counts=True)
        of = data.groups or {str(name): "all" for name in clients}
        for name, size in zip(map(str, clients), sizes.tolist(), strict=True):
            group = groups.setdefault(of[name], {"clients": 0, "least_records": size})
            group["clients"] += 1
            group["least_records"] = min(group["least_records"], size)
    training, testing = data.split()
    return {
        "data": data.name, "records": len(data.records), "training": len(training),
        "testing": len(testing), "shape": list(data.shape), "task": data.task, "classes": classes,
        "groups": groups,
    }  # fmt: skip
