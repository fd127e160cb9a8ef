"""Options that several commands of the simulation share, and what they request."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli.render import on_command_line, refuse_options
from privplan.errors import InputError
from privplan.registry import points

if TYPE_CHECKING:
    from privplan.plan import Plan
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


SEED_OPTION: Decorator = click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="One seed of the random numbers; privplan compare runs several.",
)
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
    # Read before --on, which excludes it.
    is_eager=True,
    help="Processes.",
)


DATASETS = (
    "cifar-10",
    "cifar-100",
    "digits",
    "emnist",
    "fashion-mnist",
    "femnist",
    "mnist",
    "mnist-writers",
    "shakespeare",
    "svhn",
)
"""The project's data sets for the help, which would else have to load PyTorch.

A test compares them with the registry."""
PARTITIONS = (
    "by-class:GROUP=LABEL,LABEL",
    "dirichlet:ALPHA",
    "dominant:S%",
    "iid or iid:SIZE",
    "natural",
    "pathological:N,S or pathological:S",
)
"""The project's partitions for the help, as they are written."""


class _RegistryOption(click.Option):
    """An option whose help lists names: the project's, and those of entry points."""

    def __init__(
        self, *args: Any, names: tuple[str, ...], group: str, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._names = names
        self._group = group
        self._template = str(self.help)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Left and right column of the help."""
        names = {*self._names, *(point.name for point in points(self._group))}
        self.help = self._template.format(", ".join(sorted(names)))
        return super().get_help_record(ctx)


class DeviceType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The name of a device; whether it is there is seen when it is used."""

    name = "auto|cpu|cuda|cuda:N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The name, if it is one of a device."""
        if not re.fullmatch("auto|cpu|cuda(:[0-9]+)?", str(value)):
            self.fail(f"{value!r} is not one of 'auto', 'cpu', 'cuda', 'cuda:N'.")
        return str(value)


def _refuse_file(
    context: click.Context, parameter: click.Parameter, dataset: str
) -> str:
    """The name of a data set, which a file of the user's own is not."""
    if Path(dataset).suffix and dataset.partition(":")[0] not in DATASETS:
        rule = "must be a registered name; --data reads records of your own"
        raise InputError.one("dataset", rule, dataset)
    return dataset


data_options = together(
    click.option(
        "--dataset",
        default="digits",
        show_default=True,
        callback=_refuse_file,
        cls=_RegistryOption,
        names=DATASETS,
        group="privplan.datasets",
        help="One of {}. NAME:RECORDS takes so many of its training records.",
    ),
    DATA_DIR,
    DOWNLOAD,
    click.option(
        "--device",
        type=DeviceType(),
        default="auto",
        show_default=True,
        help="cuda:N is one GPU of several. With --jobs each run has the next one.",
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


def seeds_from(first_seed: int, count: int) -> range:
    """Consecutive seeds."""
    from privplan.errors import InputError

    if first_seed + count - 1 > LARGEST_SEED:
        raise InputError.one(
            "seeds", f"must end at {LARGEST_SEED} or before", first_seed + count - 1
        )
    return range(first_seed, first_seed + count)


def refuse_unused_aggregation(plan: Plan, algorithms: Iterable[str]) -> None:
    """Raise for ``--aggregation`` where it scales no algorithm under the plan."""
    from simulate.algorithms.registry import ALGORITHMS

    context = click.get_current_context()
    entries = [ALGORITHMS.get(name) for name in algorithms]
    if any(entry.takes_aggregation(plan) for entry in entries):
        return
    if on_command_line(context, "aggregation"):
        scaled = ", ".join(name for name, entry in ALGORITHMS.items() if entry.scaled)
        rule = f"is only for {scaled}, with unit: client"
        refuse_options(context, ("aggregation",), rule)


def request_of(
    plan: Path,
    algorithm: str,
    output: Path,
    options: Mapping[str, Any],
    parts: OwnParts | None = None,
) -> Request:
    """The run that the options request; their names are those of the request's fields.

    Without an algorithm, of a comparison, the plan may be that of a spec.
    """
    from privplan.plan import Plan
    from privplan.planning.solver import solve
    from simulate.algorithms.registry import Hyperparameters
    from simulate.runs.request import Request

    fields = dict(options)
    values = hyperparameters_of(fields.pop("hyperparameters"))
    chosen = Hyperparameters(fields.pop("aggregation"), values)
    if parts is not None:
        fields["own_data"] = parts.data
        fields["own_model"] = parts.model
        fields["loss"] = parts.loss
        fields["metric"] = parts.metric
        if parts.data is not None:
            fields["dataset"] = parts.data.name
    is_spec = not algorithm and plan.suffix in (".yaml", ".yml")
    loaded = solve(plan) if is_spec else Plan.load(plan)
    return Request(loaded, algorithm, folder=output, hyperparameters=chosen, **fields)
