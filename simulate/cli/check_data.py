"""``privplan check-data``: show how own data are understood."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section
from simulate.cli.options import own_data_of, own_data_options, own_model_of

if TYPE_CHECKING:
    from privplan.plan import Plan
    from simulate.data.own import Data

BINS = 8
"""Most lines of the histogram of records per client."""
BAR = 40
"""Letters of its longest bar."""
MOST_LINES = 20
"""Most classes that are listed."""


@in_section("data")
@click.command(
    "check-data",
    short_help="Show how own data are understood.",
    epilog="Example: privplan check-data patients.csv --label ill --client patient --group unit",
)
@click.argument("source", metavar="DATA", required=False)
@own_data_options
@click.option("--plan", type=click.Path(path_type=Path), help="Plan that the data must fit.")
@click.option("--model", metavar="MODULE:CLASS", help="Own module, to show what a spec needs.")
@click.option("--model-args", metavar="JSON", help="Keyword arguments of the model's class.")
@click.option("--fix", is_flag=True, help="Group normalisation for batch normalisation.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def command(
    source: str | None,
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
    if source is None and own is None:
        raise click.UsageError("Missing argument 'DATA'.")
    data = None if source is None else own_data_of(source, options)
    parameters = None
    if own is not None:
        own.check(data)
        parameters = own.parameters()
    loaded = None if plan is None else Plan.load(plan)
    if form == "json":
        found = {} if data is None else _plain(data, loaded)
        render.data({**found, "parameters": parameters})
        return
    if data is not None:
        render.text(f"data: {data.name}, {len(data.records)} records of shape {_shape(data)}")
        render.text(_labels(data))
        if data.clients is None:
            render.text("clients: not named; --partition assigns the records to the plan's clients")
        else:
            _show_clients(data)
    if own is not None:
        render.text(f"model: {own.label}, parameters: {parameters}")
    if loaded is not None and data is not None:
        dataset, _ = data.prepared(loaded.groups)
        render.text(
            f"plan: fits {loaded.spec.name}; {len(dataset.train_y)} records for training, "
            f"{len(dataset.test_y)} for testing"
        )


def _labels(data: Data) -> str:
    """What the labels are, one line."""
    if data.targets is not None:
        shape = "x".join(map(str, data.targets.shape[1:])) or "1"
        values = f"{float(data.targets.min()):.4g} to {float(data.targets.max()):.4g}"
        return f"task: {data.task}, {shape} targets per record, {values}"
    classes = data.class_names()
    labels = data.labels(classes)
    counts = [int((labels == number).sum()) for number in range(len(classes))]
    shown = [f"{name} {count}" for name, count in zip(classes, counts, strict=True)][:MOST_LINES]
    more = f", and {len(classes) - MOST_LINES} more" if len(classes) > MOST_LINES else ""
    return f"classes: {len(classes)} (records of each: {', '.join(shown)}{more})"


def _plain(data: Data, plan: Plan | None) -> dict[str, Any]:
    """What was understood, as plain data; ``plan`` names the plan that the data fit."""
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
    if plan is not None:
        data.prepared(plan.groups)
    return {
        "data": data.name,
        "records": len(data.records),
        "shape": list(data.shape),
        "task": data.task,
        "classes": classes,
        "groups": groups,
        "plan": None if plan is None else plan.spec.name,
    }


def _shape(data: Data) -> str:
    kind = {"torch.uint8": "bytes", "torch.float32": "floating point"}
    name = kind.get(str(data.records.dtype), "token ids")
    return f"{'x'.join(map(str, data.shape))} ({name})"


def _show_clients(data: Data) -> None:
    """Clients per group, what a spec would say of them, and a histogram of records per client."""
    import numpy as np

    from privplan.cli import render

    assert data.clients is not None
    names, sizes = np.unique(data.clients, return_counts=True)
    low, middle, high = int(sizes.min()), float(np.median(sizes)), int(sizes.max())
    render.text(f"clients: {len(names)}, records per client {low} to {high}, median {middle:g}")
    groups = data.groups or {str(name): "all" for name in names}
    for group in sorted(set(groups.values())):
        own = sizes[[groups[str(name)] == group for name in names]]
        least = f"records: at least {own.min()} per client"
        render.text(f"group {group}: {len(own)} clients, {least}")
    counts, edges = np.histogram(sizes, bins=min(BINS, high - low + 1))
    for count, first, last in zip(counts, edges[:-1], edges[1:], strict=True):
        bar = "#" * round(BAR * count / counts.max())
        render.text(f"{first:8.1f} to {last:8.1f} records: {count:6d} {bar}".rstrip())
