"""``privplan check-data``: show how own data are understood."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section
from simulate.cli.options import FORMAT
from simulate.cli.own_options import (
    own_data_of,
    own_data_options,
    own_model_of,
    own_model_options,
)

if TYPE_CHECKING:
    from simulate.data.own import Data

MAX_CLASSES = 20  # most classes that are listed


@in_section("data")
@click.command(
    "check-data",
    short_help="Show how own data are understood.",
    epilog="Example: privplan check-data patients.csv --label ill --client patient "
    "--group unit --statistics statistics.json",
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
    """Show records, inputs, classes, clients and groups of DATA as simulate reads it.

    DATA is FILE.npz, FILE.csv, FILE.parquet, a folder of images, or
    package.module:function. Its clients per group and the parameters of --model, which
    is tried on it, belong in a spec. With --plan, data that do not have the plan's
    clients in each group are refused. These numbers are not private.
    """
    from privplan.cli import render
    from privplan.plan import Plan

    own_model = own_model_of(model, model_args, fix=fix)
    if source is not None and stated is not None:
        raise click.UsageError("DATA is given as an argument and by --data.")
    source = source or stated
    if source is None and own_model is None:
        raise click.UsageError("Missing argument 'DATA'.")
    data = None
    if source is not None:
        data = own_data_of(source, options)
        data.warn_of_scale()
    parameters = None
    if own_model is not None:
        own_model.check(data)
        parameters = own_model.parameters()
    loaded = None if plan is None else Plan.load(plan)
    facts: dict[str, Any] = {}
    plan_line = None
    if data is not None:
        facts = _facts(data)
        facts["plan"] = None
        facts["unit"] = None
        if loaded is not None:
            fitted, _ = data.prepared(loaded.groups)
            facts["plan"] = loaded.spec.name
            facts["unit"] = loaded.unit
            plan_line = (
                f"plan: fits {loaded.spec.name} ({loaded.identity}); "
                f"{len(fitted.train_y)} records for training, "
                f"{len(fitted.test_y)} for testing"
            )
    if form == "json":
        render.data({**facts, "parameters": parameters})
        return
    if data is not None:
        for line in _lines(data, facts):
            render.text(line)
    if own_model is not None:
        render.text(f"model: {own_model.label}, parameters: {parameters}")
    if plan_line is not None:
        render.text(plan_line)


def _lines(data: Data, facts: dict[str, Any]) -> Iterator[str]:
    """What was understood of data, in words."""
    dtypes = {"torch.uint8": "bytes", "torch.float32": "floating point"}
    dtype = dtypes.get(str(data.records.dtype), "token ids")
    shape = f"{'x'.join(map(str, data.shape))} ({dtype})"
    if data.test is None:
        tested = ""
    else:
        tested = f" and {facts['testing']} test records"
    yield f"data: {data.name}, {len(data.records)} records{tested} of shape {shape}"
    if data.test is None:
        shares = f"{facts['training']} for training, {facts['testing']} for testing"
        yield f"split: {shares} (--test-share of each client's, --test for your own)"
    places = _unnamed_codes(data)
    if places:
        shown = ", ".join(map(str, places))
        yield (
            f"inputs {shown} (from 1): whole numbers from 0 without a gap, read as "
            "measurements; if they are codes, such as rows of an embedding, --codes "
            "names their columns of a table"
        )
    yield _labels(data, facts["classes"])
    if data.clients is None:
        yield (
            "clients: not named, so a run deals the records to them by --partition: "
            "only with unit: record or --noise seeded"
        )
    else:
        yield (
            "unit: a client, with all its records, or a record, as planned; "
            "give a person one name: for k clients of one person only k epsilon holds"
        )
    for name, group in sorted(facts["groups"].items()):
        records = f"for training at least {group['least_records']} records each"
        yield f"group {name}: {group['clients']} clients, {records}"


def _unnamed_codes(data: Data) -> list[int]:
    """Places, from 1, of inputs that look like codes and were not named as such."""
    import torch

    places: list[int] = []
    if data.records.dtype != torch.float32 or data.records.ndim != 2:
        return places
    for place, values in enumerate(data.records.T):
        levels = values.unique()
        is_dense = torch.equal(levels, torch.arange(len(levels), dtype=levels.dtype))
        # Two levels are those of a flag, which needs no embedding.
        if is_dense and len(levels) > 2 and place not in data.codes:
            places.append(place + 1)
    return places


def _labels(data: Data, counts: dict[str, int] | None) -> str:
    """What the labels are, one line."""
    if counts is None:
        assert data.targets is not None
        shape = "x".join(map(str, data.targets.shape[1:])) or "1"
        values = f"{float(data.targets.min()):.4g} to {float(data.targets.max()):.4g}"
        return f"task: {data.task}, {shape} targets per record, {values}"
    listed = list(counts.items())[:MAX_CLASSES]
    text = ", ".join(f"{name} {count}" for name, count in listed)
    if len(counts) > MAX_CLASSES:
        text += f", and {len(counts) - MAX_CLASSES} more"
    seen = [name for name, count in counts.items() if count]
    text = f"classes: {len(counts)} (records of each: {text})"
    # A warning names those there are where nobody has the first one.
    if len(seen) < len(counts) and data.classes is None and listed[0][1]:
        text += "; whole numbers are counted from 0"
        text += f" unless --classes names them, here {','.join(seen[:MAX_CLASSES])}"
    if data.has_unnamed_classes:
        text += "; a run with secure noise needs --classes"
        text += f" {','.join(seen[:MAX_CLASSES])}, as labels are words"
    return text


def _facts(data: Data) -> dict[str, Any]:
    """What was understood of data, for JSON."""
    import numpy as np

    classes: dict[str, int] | None = None
    if data.targets is None:
        names = data.class_names()
        counts = np.bincount(data.labels(names), minlength=len(names)).tolist()
        classes = dict(zip(map(str, names), counts, strict=True))
    training, testing = data.split()
    groups: dict[str, dict[str, int]] = {}
    if data.clients is not None:
        # Those for training, which belong in a spec of records.
        names = data.clients[training]
        clients, sizes = np.unique(names, return_counts=True)
        group_names = data.groups or {str(name): "all" for name in clients}
        for client, size in zip(map(str, clients), sizes.tolist(), strict=True):
            group = groups.setdefault(
                group_names[client], {"clients": 0, "least_records": size}
            )
            group["clients"] += 1
            group["least_records"] = min(group["least_records"], size)
    return {
        "data": data.name,
        "records": len(data.records),
        "training": len(training),
        "testing": len(testing),
        "shape": list(data.shape),
        "task": data.task,
        "classes": classes,
        "groups": groups,
    }
