"""Options that name a user's own data, model, loss and metric, and what they read."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli.given import refuse_given
from simulate.cli.options import F

if TYPE_CHECKING:
    from simulate.data.own import Data
    from simulate.models.own import OwnModel
    from simulate.own_parts import OwnParts
    from simulate.runs.request import Request

_OWN_DATA_OPTIONS = (
    click.option(
        "--task",
        default="multi-class",
        show_default=True,
        help="multi-class, binary, multi-label, regression or next-token.",
    ),
    click.option(
        "--label", metavar="NAME", help="Column or array of the labels; NAME,NAME for several."
    ),
    click.option("--client", metavar="NAME", help="Column or array of each record's client."),
    click.option(
        "--group",
        metavar="NAME",
        help="Column or array of the privacy groups.",
    ),
    click.option(
        "--groups",
        type=click.Path(path_type=Path),
        help="CSV file with the columns client and group, instead of --group.",
    ),
    click.option(
        "--features",
        metavar="NAME,NAME",
        help="Columns in the order of the inputs; all other columns if left out.",
    ),
    click.option(
        "--statistics",
        type=click.Path(path_type=Path),
        help="JSON file of public mean, std, fill and categories per column.",
    ),
    click.option(
        "--test",
        type=click.Path(path_type=Path),
        help="File or folder with the test records, in the form of the data.",
    ),
    click.option(
        "--test-share", type=float, help="Share of the records split off for testing.  [0.2]"
    ),
)


OWN_DATA_NAMES = (
    "task", "label", "client", "group", "groups", "features", "statistics", "test", "test_share"
)  # fmt: skip
"""Names of the options that say how own data are read."""

_OWN_OPTIONS = (
    click.option(
        "--data",
        metavar="SOURCE",
        help="Own data instead of --dataset: FILE.npz, FILE.csv, FILE.parquet, a folder of "
        "images, or package.module:function; docs/own-data.md explains each.",
    ),
    *_OWN_DATA_OPTIONS,
    click.option(
        "--model", metavar="MODULE:CLASS", help="Own torch.nn.Module, under the plan's model name."
    ),
    click.option("--model-args", metavar="JSON", help="Keyword arguments of the model's class."),
    click.option("--fix", is_flag=True, help="Group normalisation for batch normalisation."),
    click.option(
        "--loss", metavar="MODULE:NAME", help="Own loss of outputs and targets, a scalar."
    ),
    click.option(
        "--metric",
        metavar="NAME",
        help="Metric of the task, or MODULE:NAME of an own or torchmetrics one.",
    ),
)
_OWN_NAMES = ("data", *OWN_DATA_NAMES, "model", "model_args", "fix", "loss", "metric")


def own_options(command: F) -> F:
    """Adds the options for own data, model, loss and metric."""
    for option in reversed(_OWN_OPTIONS):
        command = option(command)
    return command


def own_of(context: click.Context, options: dict[str, Any]) -> OwnParts:
    """What the options name; they are removed from ``options``.

    Raises:
        InputError: naming each fault.
    """
    given = {name: options.pop(name) for name in _OWN_NAMES}
    reading = {name: given[name] for name in OWN_DATA_NAMES}
    data = None
    if given["data"] is not None:
        refuse_given(context, ["dataset"], "must be left out with --data")
        data = own_data_of(given["data"], reading)
    else:
        refuse_given(context, OWN_DATA_NAMES, "is only for --data")
    model = own_model_of(given["model"], given["model_args"], fix=given["fix"])
    loss, metric = given["loss"], given["metric"]
    from simulate.own_parts import OwnParts

    return OwnParts(data, model, _named("loss", loss), _named("metric", metric))


def with_own(request: Request, own: OwnParts) -> Request:
    """The request with own data and model."""
    if own.data is not None:
        request = replace(request, own_data=own.data, dataset=own.data.name)
    return replace(request, own_model=own.model, loss=own.loss, metric=own.metric)


def _named(field: str, text: str | None) -> Any:
    """The object that a text names; a text without a colon is a name of the project's own."""
    if text is None or (field == "metric" and ":" not in text):
        return text
    from simulate.data.sources import imported

    return imported(field, text)


def own_data_options(command: F) -> F:
    """Adds the options that say how own data are read."""
    for option in reversed(_OWN_DATA_OPTIONS):
        command = option(command)
    return command


def own_data_of(source: str, options: Mapping[str, Any]) -> Data:
    """The data that ``--data`` or an argument names, read with the options of own data.

    Raises:
        InputError: naming each fault.
    """
    from privplan.errors import InputError
    from simulate.data.sources import DataOptions, load_own

    words = options["features"]
    names = [
        word.strip()
        for line in csv.reader([words or ""], skipinitialspace=True)  # a quoted name has a comma
        for word in line
        if word.strip()
    ]
    if words is not None and not names:
        raise InputError.one("features", "must name a column", words)
    return load_own(source, DataOptions(**{**options, "features": tuple(names)}))


def own_model_of(
    source: str | None, arguments: str | None, *, fix: bool = False
) -> OwnModel | None:
    """The user's model that ``--model`` names; None without.

    Raises:
        InputError: when it cannot be imported, or the arguments are no JSON object.
    """
    from privplan.errors import InputError

    if source is None:
        if arguments is not None:
            raise InputError.one("model-args", "is only for --model", arguments)
        if fix:
            raise InputError.one("fix", "is only for --model", "--fix")
        return None
    from simulate.data.sources import imported
    from simulate.models.own import OwnModel

    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError.one("model-args", "must be a JSON object", arguments)
    found = imported("model", source)
    if not callable(found):
        rule = "must be a torch.nn.Module, or a class or function that returns one"
        raise InputError.one("model", rule, type(found).__name__)
    return OwnModel(found, values, source, fix)
