"""Options that name a user's own data, model, loss and metric, and what they read."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli.render import refuse_options
from privplan.errors import InputError
from simulate.cli.options import together

if TYPE_CHECKING:
    from simulate.data.own import Data
    from simulate.models.own import OwnModel
    from simulate.own_parts import OwnParts

own_data_options = together(
    click.option(
        "--task",
        default="multi-class",
        show_default=True,
        help="multi-class, binary, multi-label, regression or next-token.",
    ),
    click.option(
        "--label",
        metavar="NAME",
        help="Column or array of the labels; NAME,NAME for several.",
    ),
    click.option(
        "--classes",
        metavar="NAME,NAME",
        help="All classes in the order of the outputs, of labels in words.",
    ),
    click.option(
        "--client", metavar="NAME", help="Column or array of each record's client."
    ),
    click.option(
        "--group", metavar="NAME", help="Column or array of the privacy groups."
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
        "--codes",
        metavar="NAME,NAME",
        help="Columns of whole numbers from 0, inputs as they are: rows of an embedding.",
    ),
    click.option(
        "--statistics",
        type=click.Path(path_type=Path),
        help="JSON file of public mean, std, fill and categories per column; none if "
        "standardised.",
    ),
    click.option(
        "--test",
        type=click.Path(path_type=Path),
        help="File or folder with the test records, in the form of the data.",
    ),
    click.option(
        "--test-of-others",
        is_flag=True,
        help=(
            "The people of --test are no clients, so that scores on their records "
            "may be shown."
        ),
    ),
    click.option(
        "--test-share",
        type=float,
        help="Share of the records split off for testing.  [0.2]",
    ),
)


OWN_DATA_NAMES = (
    "task",
    "label",
    "classes",
    "client",
    "group",
    "groups",
    "features",
    "codes",
    "statistics",
    "test",
    "test_of_others",
    "test_share",
)
"""Names of the options that say how own data are read."""

own_model_options = together(
    click.option(
        "--model",
        metavar="MODULE:CLASS",
        help="Own torch.nn.Module, under the plan's model name.",
    ),
    click.option(
        "--model-args", metavar="JSON", help="Keyword arguments of the model's class."
    ),
    click.option(
        "--fix", is_flag=True, help="Group normalisation for batch normalisation."
    ),
)
own_options = together(
    click.option(
        "--data",
        metavar="SOURCE",
        help="Own data instead of --dataset: FILE.npz, FILE.csv, FILE.parquet, a folder "
        "of images, or package.module:function; docs/own-data.md explains each.",
    ),
    own_data_options,
    own_model_options,
    click.option(
        "--loss",
        metavar="MODULE:NAME",
        help="Own loss of outputs and targets, a scalar.",
    ),
    click.option(
        "--metric",
        metavar="NAME",
        help="Metric of the task, or MODULE:NAME of an own or torchmetrics one.",
    ),
)
OWN_NAMES = ("data", *OWN_DATA_NAMES, "model", "model_args", "fix", "loss", "metric")


def own_of(context: click.Context, options: dict[str, Any]) -> OwnParts:
    """What the options name; they are removed from ``options``."""
    values = {name: options.pop(name) for name in OWN_NAMES}
    data = None
    if values["data"] is not None:
        refuse_options(context, ["dataset"], "must be left out with --data")
        how_to_read = {name: values[name] for name in OWN_DATA_NAMES}
        data = own_data_of(values["data"], how_to_read)
    else:
        rule = "is only for --data, of which it says how to read it"
        refuse_options(context, OWN_DATA_NAMES, rule)
    model = own_model_of(values["model"], values["model_args"], fix=values["fix"])
    from simulate.data.user_code import imported
    from simulate.own_parts import OwnParts

    loss = values["loss"]
    if loss is not None:
        loss = imported("loss", loss)
    # A text without a colon is the name of one of the task's metrics.
    metric = values["metric"]
    if metric is not None and ":" in metric:
        metric = imported("metric", metric)
    return OwnParts(data, model, loss, metric)


def own_data_of(source: str, options: Mapping[str, Any]) -> Data:
    """The data that ``--data`` or an argument names, read as its options say."""
    from simulate.data.own_files import DataOptions
    from simulate.data.sources import load_own

    named = {
        field: _names(field, options[field])
        for field in ("features", "codes", "classes")
    }
    return load_own(source, DataOptions(**{**options, **named}))


def _names(field: str, text: str | None) -> tuple[str, ...]:
    """The names of columns in an option."""
    names: list[str] = []
    # As CSV, in which a quoted name may have a comma.
    for line in csv.reader([text or ""], skipinitialspace=True):
        names += [word.strip() for word in line if word.strip()]
    if text is not None and not names:
        raise InputError.one(field, "must name a column", text)
    return tuple(names)


def own_model_of(
    source: str | None, arguments: str | None, *, fix: bool = False
) -> OwnModel | None:
    """The user's model that ``--model`` names; None without."""
    if source is None:
        if arguments is not None:
            raise InputError.one("model-args", "is only for --model", arguments)
        if fix:
            raise InputError.one("fix", "is only for --model", "--fix")
        return None
    from torch import nn

    from simulate.data.user_code import imported
    from simulate.models.own import OwnModel

    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError.one("model-args", "must be a JSON object", arguments)
    build = imported("model", source)
    # Parameters of a module that was made are others whenever its file is imported.
    if isinstance(build, nn.Module) or not callable(build):
        rule = (
            "must be a class or function that returns a torch.nn.Module, so that a "
            "verifier can make it again"
        )
        raise InputError.one("model", rule, type(build).__name__)
    return OwnModel(build, values, source, fix)
