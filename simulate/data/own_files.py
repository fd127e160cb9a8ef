"""Own data in files: tables, NPZ files, folders of images; never imported as code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from privplan.errors import Fault, InputError, did_you_mean
from privplan.limits import MOST_PIXELS, most_unpacked, refuse_bomb
from simulate.data.columns import (
    Columns,
    column,
    columns_of,
    numbers,
    read_csv,
    read_parquet,
    text_column,
)
from simulate.data.encoding import (
    AS_THEY_ARE,
    NO_STATISTICS,
    Encoding,
    Statistics,
    read_statistics,
)
from simulate.data.own import Data
from simulate.data.reading import one_line_errors, opened
from simulate.tasks import MULTI_CLASS, task_of


@dataclass(frozen=True)
class DataOptions:
    """How a file or folder is read.

    Attributes:
        label: column or array of the labels; several columns with commas between.
        client: column or array of the client of each record.
        group: column or array of the privacy group of each record.
        groups: CSV file with columns client and group, instead of ``group``.
        features: in the order of the inputs; all other columns when empty.
        codes: features whose whole numbers from 0 are inputs as they are.
        statistics: JSON file of public statistics, or ``none``.
        test: file or folder with the test records, of the same form.
        test_of_others: whether the people of the test records are no clients, as the
            user says.
        test_share: of each client's records.
        task: what the labels are.
        classes: names of all classes in the order of the outputs; read from the labels
            when empty.
    """

    label: str | None = None
    client: str | None = None
    group: str | None = None
    groups: Path | None = None
    features: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    statistics: Path | None = None
    test: Path | None = None
    test_of_others: bool = False
    test_share: float | None = None
    task: str = MULTI_CLASS
    classes: tuple[str, ...] = ()

    @property
    def is_of_others(self) -> bool:
        """Whether these are options of test records of people who are no clients."""
        return self.test_of_others and self.test is None


def columns_in(source: Any) -> Columns:
    """The columns of a table, or of a CSV, TSV or Parquet file."""
    if not isinstance(source, Path | str):
        return columns_of(source)
    path = Path(source)
    if path.suffix.lower() == ".parquet":
        return read_parquet(path)
    return read_csv(path)


def _table(path: Path, options: DataOptions, test: Data | None) -> Data:
    """Data in a CSV, TSV or Parquet file."""
    columns = columns_in(path)
    if options.is_of_others:
        columns, options = _without_clients(columns, options)
    return from_table(
        columns,
        label=options.label,
        client=options.client,
        group=options.group,
        groups=_groups_csv(options),
        features=options.features,
        codes=options.codes,
        statistics=options.statistics,
        test=test,
        test_share=options.test_share,
        task=options.task,
        classes=options.classes or None,
        name=path.name,
    )


def _without_clients(
    columns: Columns, options: DataOptions
) -> tuple[Columns, DataOptions]:
    """Test records of people who are no clients, whom nothing need name.

    Where the records name groups and no people, each is of a person of its own.
    """
    if options.group not in columns:
        options = replace(options, group=None)
    if options.client is None or options.client in columns:
        return columns, options
    if options.group is None:
        return columns, replace(options, client=None)
    records = len(column(columns, "group", options.group))
    people = [f"test record {row}" for row in range(records)]
    return {**columns, options.client: people}, options


def _stated(statistics: Any) -> Statistics | None:
    """The statistics of a mapping, a file, or the word ``none``."""
    if str(statistics) == "none":
        return AS_THEY_ARE
    if isinstance(statistics, Path | str):
        return read_statistics(Path(statistics))
    if statistics is not None and not isinstance(statistics, Mapping):
        rule = (
            "must be a mapping of columns to their public mean and std or categories, "
            'such as {"age": {"mean": 50, "std": 10}}'
        )
        raise InputError.one("statistics", rule, type(statistics).__name__)
    return statistics


def from_table(
    table: Any,
    *,
    label: str | Sequence[str] | None = None,
    client: str | None = None,
    group: str | None = None,
    groups: Mapping[str, str] | None = None,
    features: Sequence[str] | str = (),
    codes: Sequence[str] | str = (),
    statistics: Statistics | Path | str | None = None,
    **arguments: Any,
) -> Data:
    """``Data`` of a table with named columns.

    Args:
        table: a pandas, Arrow or ``datasets`` table, or a mapping of columns.
        label: names of columns, in a list or with commas between.
        client: name of the column of each record's client.
        group: name of the column of each record's privacy group.
        groups: group of each client, instead of a column.
        features: names of columns in the order of the inputs, as those of labels; all
            other columns when empty.
        codes: names of features whose whole numbers from 0 are inputs as they are, such
            as rows of an ``nn.Embedding``; without other features the inputs are int64.
        statistics: public statistics of the features (``simulate.data.encoding``), or
            the JSON file that holds them; the word ``none`` where all are standardised.
        arguments: others of ``Data``.

    Raises:
        InputError: for a column that is missing, or named twice, or cannot be read.
    """
    columns = columns_of(table)
    statistics = _stated(statistics)
    labels = _names(label or ())
    features = _names(features)
    codes = _names(codes)
    # An unknown task is refused first: its labels are of no kind.
    task = task_of(arguments.get("task", MULTI_CLASS)).name
    named = [*labels, *(name for name in (client, group) if name)]
    inputs = list(features) or [name for name in columns if name not in named]
    try:
        _require_columns(columns, labels, client, group, task)
    except InputError as error:
        # All that is wrong is said at once.
        if statistics is None and set(inputs) - set(codes):
            raise InputError([*error.faults, NO_STATISTICS]) from None
        raise
    clients = text_column(columns, "client", client) if client else None
    group_names = text_column(columns, "group", group) if group else None
    arguments["y"] = _labels(columns, labels, task)
    if statistics is not None and statistics is not AS_THEY_ARE:
        _require_of_features(statistics, named)
    _require_distinct(inputs, labels)
    encoding = Encoding(inputs, statistics, codes)
    arguments["x"], arguments["codes"] = encoding.inputs(columns)
    arguments |= {"client": clients, "group": groups or group_names}
    data = Data(**arguments)
    data._encoding = encoding.of_features()
    return data


def _require_columns(
    columns: Columns,
    labels: Sequence[str],
    client: str | None,
    group: str | None,
    task: str,
) -> None:
    """Refuses columns of labels, clients and groups that are missing or named twice."""
    faults: list[Fault] = []
    present = ", ".join(columns)
    if not labels and task != "next-token":
        rule = f"is required for a table: one of the columns {present}"
        faults.append(Fault("label", rule, "none"))
    named = [("client", client), ("group", group)]
    named += [("label", name) for name in labels]
    roles: dict[str, str] = {}
    for role, name in named:
        if not name:
            continue
        if name not in columns:
            hint = did_you_mean(name, columns)
            rule = f"must be one of the columns {present}{hint}"
            faults.append(Fault(role, rule, name))
        elif name in roles:
            rule = f"must be another column than {roles[name]}"
            faults.append(Fault(role, rule, name))
        roles.setdefault(name, role)
    if faults:
        raise InputError(faults)


def _require_distinct(features: Sequence[str], labels: Sequence[str]) -> None:
    """Refuse features that stand twice, or are labels."""
    for name, times in Counter(features).items():
        if name in labels:
            raise InputError.one("features", "must not hold the label", name)
        if times > 1:
            raise InputError.one("features", "must name each column once", name)


def _require_of_features(statistics: Statistics, named: Sequence[str]) -> None:
    """Refuse statistics of columns that are labels, clients or groups."""
    rule = "must be of a feature, and this column is a label, the client or the group"
    faults = [
        Fault(f"statistics.{name}", rule, name) for name in named if name in statistics
    ]
    if faults:
        raise InputError(faults)


def _names(columns: Sequence[str] | str) -> list[str]:
    """Names of columns, in a list or with commas between."""
    if isinstance(columns, str):
        return columns.split(",")
    return list(columns)


def _labels(columns: Columns, names: Sequence[str], task: str) -> Any:
    """Labels from columns: of classes [n], else numbers [n] or [n, labels]."""
    if task == MULTI_CLASS and len(names) > 1:
        rule = f"must be one column for {MULTI_CLASS}"
        raise InputError.one("label", rule, ",".join(names))
    if not names:
        return None
    if task == MULTI_CLASS:
        return text_column(columns, "label", names[0])
    try:
        labels = [numbers(columns, "label", name) for name in names]
    except InputError as error:
        rule = f"{error.faults[0].rule}, for {task}; {MULTI_CLASS} takes names"
        raise InputError.one("label", rule, error.faults[0].found) from None
    if len(labels) == 1 and task != "multi-label":
        return labels[0]
    return np.stack(labels, 1)


def _npz(path: Path, options: DataOptions, test: Data | None) -> Data:
    """Data in an NPZ file, whose arrays are model inputs, labels and names."""
    if options.codes:
        rule = "must be left out with NPZ files, whose whole numbers are codes"
        raise InputError.one("codes", rule, options.codes)
    if options.statistics is not None:
        rule = "must be left out with NPZ files, whose records are model inputs"
        raise InputError.one("statistics", rule, str(options.statistics))
    with one_line_errors(path, "must be an NPZ file of numbers and texts"):
        refuse_bomb(path, "data")
        file = np.load(path)
        arrays: Columns = {name: file[name] for name in file.files}
    if options.is_of_others:
        options = replace(
            options,
            client=options.client or "client",
            group=options.group or "group",
        )
        arrays, options = _without_clients(arrays, options)
    names = ", ".join(arrays)

    def array(role: str, name: str | None, default: str) -> Any:
        if name is None:
            return arrays.get(default)
        if name not in arrays:
            raise InputError.one(role, f"must be one of the arrays {names}", name)
        return arrays[name]

    if len(options.features) > 1:
        rule = "must name one array of an NPZ file"
        raise InputError.one("features", rule, options.features)
    feature = options.features[0] if options.features else None
    x = array("features", feature, "x")
    y = array("label", options.label, "y")
    if x is None:
        rule = f"is required for {path.name} without an array x"
        raise InputError.one("features", rule, names)
    if y is None and options.task != "next-token":
        rule = f"is required for {path.name} without an array y"
        raise InputError.one("label", rule, names)
    if test is None and "test_x" in arrays:
        test = Data(
            arrays["test_x"],
            arrays.get("test_y"),
            arrays.get("test_client"),
            task=options.task,
        )
    groups = _groups_csv(options)
    return Data(
        x,
        y,
        array("client", options.client, "client"),
        array("group", options.group, "group") if groups is None else groups,
        test,
        options.test_share,
        name=path.name,
        task=options.task,
        classes=options.classes or None,
    )


def _folder(folder: Path, options: DataOptions, test: Data | None) -> Data:
    """Images ``CLIENT/CLASS/*.png``, or ``CLASS/*.png`` without clients."""
    if options.task != MULTI_CLASS:
        rule = f"must be {MULTI_CLASS} with a folder of images by class"
        raise InputError.one("task", rule, options.task)
    for name in ("label", "client", "group", "features", "codes", "statistics"):
        value = getattr(options, name)
        if value:
            rule = (
                "must be left out with a folder of images; join several tables into one "
                "file"
            )
            raise InputError.one(name, rule, str(value))
    by_client = sorted(folder.glob("*/*/*.[pP][nN][gG]"))
    by_class = sorted(folder.glob("*/*.[pP][nN][gG]"))
    if bool(by_client) == bool(by_class):
        present = "both" if by_client else "no image"
        rule = "must hold either CLIENT/CLASS/*.png or CLASS/*.png"
        raise InputError.one("data", rule, f"{present} in {folder}")
    paths = by_client or by_class
    labels = [path.parent.name for path in paths]
    return Data(
        _images(paths),
        labels,
        [path.parent.parent.name for path in paths] if by_client else None,
        _groups_csv(options),
        test,
        options.test_share,
        options.classes or None,
        name=folder.resolve().name,
        mean=0.0,
        std=255.0,
    )


def _images(paths: Sequence[Path]) -> np.ndarray:
    """Images [n, channels, height, width], uint8; one channel if grey, else three."""
    images: list[np.ndarray] = []
    limit = most_unpacked(sum(path.stat().st_size for path in paths))
    for path in paths:
        image = _image(path)
        images.append(image)
        if image.shape != images[0].shape:
            rule = f"must have images like the first one, {images[0].shape}"
            raise InputError.one("data", rule, f"{path}, {image.shape}")
        size = len(paths) * image.nbytes
        if size > limit:
            raise InputError.one("data", f"must unpack to at most {limit} bytes", size)
    return np.stack(images)


def _image(path: Path) -> np.ndarray:
    """A PNG image [channels, height, width]."""
    from PIL import Image

    rule = f"must be a PNG image of at most {MOST_PIXELS} pixels"
    with (
        one_line_errors(path, rule),
        opened(path) as file,
        Image.open(file, formats=("PNG",)) as image,
    ):
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width} x {image.height}")
        if image.mode in ("L", "1"):
            return np.asarray(image.convert("L"))[None]
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def _groups_csv(options: DataOptions) -> dict[str, str] | None:
    """Group of each client, from a CSV file with the columns client and group."""
    path = options.groups
    if path is None:
        return None
    if not Path(path).exists():
        rule = (
            "must be FILE.csv with the columns client and group; --group names a column"
        )
        raise InputError.one("groups", rule, str(path))
    columns = read_csv(path, "groups")
    clients = column(columns, "groups", "client")
    groups = column(columns, "groups", "group")
    if len(set(clients)) < len(clients):
        raise InputError.one("groups", "must have one line per client", str(path))
    return dict(zip(clients, groups, strict=True))


Reader = Callable[[Path, DataOptions, Data | None], Data]
_READERS: Mapping[str, Reader] = MappingProxyType(
    {".npz": _npz, ".csv": _table, ".tsv": _table, ".parquet": _table}
)
"""Readers of files by suffix."""


def reader_of(path: Path) -> Reader | None:
    """What reads a file or folder with its test records; None for another form."""
    if path.is_dir():
        return _folder
    return _READERS.get(path.suffix.lower())
