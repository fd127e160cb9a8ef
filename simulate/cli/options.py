"""Options that several commands of the simulation share, and what they request."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli.render import on_command_line, refuse_options
from privplan.registry import points

if TYPE_CHECKING:
    from privplan.plan import Plan
    from simulate.data.own import Data
    from simulate.models.own import OwnModel
    from simulate.own_parts import OwnParts
    from simulate.runs.request import Request


class FiniteRange(click.FloatRange):
    """Numbers of a range; click's own lets pass ``nan``, which no bound holds back."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, refused when it is not finite."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


LARGEST_SEED = 2**64 - 1  # largest seed that a record can hold
SEED = click.IntRange(min=0, max=LARGEST_SEED)
Decorator = Callable[[Any], Any]


def together(*options: Decorator) -> Decorator:
    """A decorator that adds all the options, in the order of the help."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


SEED_OPTION: Decorator = click.option("--seed", type=SEED, default=0, show_default=True)
FORMAT: Decorator = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
)
DATA_DIR: Decorator = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder with the data; else the environment variable PRIVPLAN_DATA.",
)
DOWNLOAD: Decorator = click.option(
    "--download",
    is_flag=True,
    help="Fetch missing data into that folder, or the user's cache.",
)
PROXY_HELP = "Public or proxy data, never the data that need protection."
proxy_options = together(
    click.option("--dataset", required=True, help=PROXY_HELP), DATA_DIR
)
JOBS: Decorator = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes.",
)


DATASETS = (
    "cifar-10", "cifar-100", "digits", "emnist", "fashion-mnist", "femnist", "mnist",
    "mnist-writers", "shakespeare", "svhn",
)  # fmt: skip
"""The project's data sets for the help, which would else have to load PyTorch; a test compares."""
PARTITIONS = (
    "by-class:GROUP=LABEL,LABEL", "dirichlet:ALPHA", "dominant:S%", "iid or iid:SIZE", "natural",
    "pathological:N,S or pathological:S",
)  # fmt: skip
"""The project's partitions for the help, as they are written."""


class _RegistryOption(click.Option):
    """An option whose help lists names: the project's, and entry points of other packages."""

    def __init__(
        self, *args: Any, names: tuple[str, ...], group: str, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._names, self._group, self._template = names, group, str(self.help)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Left and right column of the help."""
        others = (point.name for point in points(self._group))
        self.help = self._template.format(", ".join(sorted({*self._names, *others})))
        return super().get_help_record(ctx)


data_options = together(
    click.option(
        "--dataset",
        default="digits",
        show_default=True,
        cls=_RegistryOption,
        names=DATASETS,
        group="privplan.datasets",
        help="One of {}. NAME:RECORDS takes so many of its training records.",
    ),
    DATA_DIR,
    DOWNLOAD,
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
    ),
    click.option(
        "--partition",
        default="iid",
        show_default=True,
        cls=_RegistryOption,
        names=PARTITIONS,
        group="privplan.partitions",
        help="Partition of the training records over clients: {}; see the page on data sets.",
    ),
    click.option(
        "--aggregation",
        type=click.Choice(["paper", "mean"]),
        default="paper",
        show_default=True,
        help="Scale of GDPFed, PFA and their variants: as printed in GDPFed+, or a mean.",
    ),
    click.option(
        "--set",
        "hyperparameters",
        multiple=True,
        metavar="NAME=NUMBER",
        help="A hyperparameter of the algorithm, such as rho=0.5; see simulate --algorithms.",
    ),
)


report_options = together(
    click.option(
        "--track",
        multiple=True,
        metavar="NAME",
        help="Write metrics for tensorboard, mlflow or wandb, offline; may be repeated.",
    ),
    FORMAT,
)


def hyperparameters_of(words: tuple[str, ...]) -> dict[str, float]:
    """Values of hyperparameters from words ``NAME=NUMBER``."""
    from privplan.errors import Fault, InputError

    values: dict[str, float] = {}
    faults = []
    for word in words:
        name, _, value = word.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            faults.append(Fault("set", "must be NAME=NUMBER, such as rho=0.5", word))
    if faults:
        raise InputError(faults)
    return values


def seeds_from(first: int, count: int) -> range:
    """Consecutive seeds."""
    from privplan.errors import InputError

    if first + count - 1 > LARGEST_SEED:
        raise InputError.one(
            "seeds", f"must end at {LARGEST_SEED} or before", first + count - 1
        )
    return range(first, first + count)


def refuse_unused_aggregation(plan: Plan, algorithms: Iterable[str]) -> None:
    """Raises for ``--aggregation`` where none of the algorithms is scaled by it under the plan."""
    from simulate.algorithms.registry import ALGORITHMS

    context, chosen = (
        click.get_current_context(),
        [ALGORITHMS.get(name) for name in algorithms],
    )
    taken = any(one.takes_aggregation(plan) for one in chosen)
    if taken or not on_command_line(context, "aggregation"):
        return
    known = ", ".join(name for name, entry in ALGORITHMS.items() if entry.scaled)
    refuse_options(context, ("aggregation",), f"is only for {known}, with unit: client")


def request_of(
    plan: Path,
    algorithm: str,
    output: Path,
    options: Mapping[str, Any],
    own: OwnParts | None = None,
) -> Request:
    """The run that the options request; their names are those of the request's fields.

    Without an algorithm, of a comparison, the plan may be that of a spec.
    """
    from privplan.plan import Plan
    from privplan.planning.solver import solve
    from simulate.algorithms.registry import Hyperparameters
    from simulate.runs.request import Request

    rest = dict(options)
    values = hyperparameters_of(rest.pop("hyperparameters"))
    chosen = Hyperparameters(rest.pop("aggregation"), values)
    if own is not None:
        rest |= {"own_data": own.data, "own_model": own.model}
        rest |= {"loss": own.loss, "metric": own.metric}
        rest["dataset"] = rest["dataset"] if own.data is None else own.data.name
    loaded = (
        solve(plan)
        if not algorithm and plan.suffix in (".yaml", ".yml")
        else Plan.load(plan)
    )
    return Request(loaded, algorithm, folder=output, hyperparameters=chosen, **rest)


# --- Options that name a user's own data, model, loss and metric, and what they read. ------------

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
        "--statistics",
        type=click.Path(path_type=Path),
        help="JSON file of public mean, std, fill and categories per column; none if standardised.",
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
    "task", "label", "client", "group", "groups", "features", "statistics", "test",
    "test_of_others", "test_share",
)  # fmt: skip
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
        help="Own data instead of --dataset: FILE.npz, FILE.csv, FILE.parquet, a folder of "
        "images, or package.module:function; docs/own-data.md explains each.",
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
_OWN_NAMES = ("data", *OWN_DATA_NAMES, "model", "model_args", "fix", "loss", "metric")


def own_of(context: click.Context, options: dict[str, Any]) -> OwnParts:
    """What the options name; they are removed from ``options``."""
    given = {name: options.pop(name) for name in _OWN_NAMES}
    reading = {name: given[name] for name in OWN_DATA_NAMES}
    data = None
    if given["data"] is not None:
        refuse_options(context, ["dataset"], "must be left out with --data")
        data = own_data_of(given["data"], reading)
    else:
        refuse_options(context, OWN_DATA_NAMES, "is only for --data")
    model = own_model_of(given["model"], given["model_args"], fix=given["fix"])
    from simulate.data.sources import imported
    from simulate.own_parts import OwnParts

    loss, metric = given["loss"], given["metric"]
    loss = None if loss is None else imported("loss", loss)
    if (
        metric is not None and ":" in metric
    ):  # a text without a colon is a name of the task's own
        metric = imported("metric", metric)
    return OwnParts(data, model, loss, metric)


def own_data_of(source: str, options: Mapping[str, Any]) -> Data:
    """The data that ``--data`` or an argument names, read with the options of own data."""
    from privplan.errors import InputError
    from simulate.data.sources import DataOptions, load_own

    words = options["features"]
    names = [
        word.strip()
        for line in csv.reader(
            [words or ""], skipinitialspace=True
        )  # a quoted name has a comma
        for word in line
        if word.strip()
    ]
    if words is not None and not names:
        raise InputError.one("features", "must name a column", words)
    return load_own(source, DataOptions(**{**options, "features": tuple(names)}))


def own_model_of(
    source: str | None, arguments: str | None, *, fix: bool = False
) -> OwnModel | None:
    """The user's model that ``--model`` names; None without."""
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
