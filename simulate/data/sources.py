"""Own data from the command line: a file, a folder of images, or a user's function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from privplan.errors import InputError
from simulate.data import tables
from simulate.data.arrays import said
from simulate.data.files import reading
from simulate.data.own import Data
from simulate.tasks import MULTI_CLASS

FORMS = "FILE.npz, FILE.csv, FILE.parquet, a folder of images, or package.module:function"


_PATHS = ("groups", "statistics", "test")
"""Options that name files."""


@dataclass(frozen=True)
class DataOptions:
    """How a file or folder is read.

    Attributes:
        label: column or array of the labels; several columns with commas between.
        client: column or array of the clients.
        group: column or array of the privacy groups.
        groups: CSV file with the columns ``client`` and ``group``, instead of ``group``.
        features: columns of a table in the order of the inputs, all others when empty; or the
            array of the records.
        statistics: JSON file of public statistics.
        test: file or folder with the test records, of the same form.
        test_share: share of each client's records that is split off for testing.
        task: name of the task.
    """

    label: str | None = None
    client: str | None = None
    group: str | None = None
    groups: Path | None = None
    features: tuple[str, ...] = ()
    statistics: Path | None = None
    test: Path | None = None
    test_share: float | None = None
    task: str = MULTI_CLASS


def load_own(source: str, options: DataOptions) -> Data:
    """The data that a command line names.

    Args:
        source: a file, a folder, or ``package.module:function``; a function is imported and
            called, and must return ``simulate.Data``.
        options: how it is read.

    Raises:
        InputError: when it does not exist, cannot be read, or does not fit the options.
    """
    path = Path(source)
    read = _folder if path.is_dir() else _READERS.get(path.suffix.lower())
    if read is not None:
        if options.group is not None and options.groups is not None:
            rule = "must be left out with --groups, which names the group of each client"
            raise InputError.one("group", rule, options.group)
        if options.test is None:
            return read(path, options, None)
        if not (options.test.is_dir() if path.is_dir() else options.test.suffix == path.suffix):
            form = "a folder" if path.is_dir() else f"a {path.suffix} file"
            raise InputError.one("test", f"must be {form}, like the data", str(options.test))
        of_test = replace(options, test=None, test_share=None, groups=None)
        return read(path, options, read(options.test, of_test, None))
    if ":" not in source or path.exists():
        raise InputError.one("data", f"must be {FORMS}", source)
    given = imported("data", source)
    try:
        made = given() if callable(given) else given
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        raise InputError.one("data", "must be made without an error", said(error)) from None
    if not isinstance(made, Data):
        rule = f"must be a function that returns simulate.Data ({source})"
        raise InputError.one("data", rule, type(made).__name__)
    for name in (field.name for field in fields(DataOptions)):
        if getattr(options, name) not in (None, (), made.task if name == "task" else None):
            if name == "task" and options.task == MULTI_CLASS:
                continue
            rule = "must be left out with data that a function returns"
            raise InputError.one(name, rule, str(getattr(options, name)))
    return made


def load_file(source: Path | str, options: Mapping[str, Any]) -> Data:
    """The data in a file or folder, which is never imported as code.

    Args:
        source: the file or folder.
        options: fields of ``DataOptions`` by name.

    Raises:
        InputError: as ``load_own``, or for an unknown option.
    """
    known = [field.name for field in fields(DataOptions)]
    for name in options:
        if name not in known:
            raise InputError.one("data", f"options must be among {', '.join(known)}", name)
    paths = {name: options[name] for name in _PATHS if options.get(name) is not None}
    for name, given in paths.items():
        if not isinstance(given, str | Path):
            raise InputError.one(name, "must be the path of a file", type(given).__name__)
        paths[name] = Path(given)
    path = Path(source)
    if not path.exists():
        raise InputError.one("data", "must be a file or folder", str(source))
    return load_own(str(source), DataOptions(**{**options, **paths}))


def imported(field: str, text: str) -> Any:
    """The object that ``package.module:name`` names; also modules of the working directory.

    Raises:
        InputError: when the text has another form, or the import fails.
    """
    module, _, name = text.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and name.isidentifier()):
        raise InputError.one(field, "must be package.module:name", text)
    folder = str(Path.cwd())
    if folder not in sys.path:  # it stays, for later imports and for processes of a comparison
        sys.path.append(folder)
    try:
        return getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        raise InputError.one(field, f"must be importable as {text}", said(error)) from None


def _table(path: Path, options: DataOptions, test: Data | None) -> Data:
    if options.label is None and options.task != "next-token":
        raise InputError.one("label", "is required for a table: the column of labels", "none")
    columns = tables.read_csv(path) if path.suffix.lower() == ".csv" else tables.read_parquet(path)
    statistics = None
    if options.statistics is not None:
        statistics = tables.read_statistics(options.statistics)
    return from_table(
        columns,
        label=options.label,
        client=options.client,
        group=options.group,
        groups=_groups_csv(options),
        features=options.features,
        statistics=statistics,
        test=test,
        test_share=options.test_share,
        task=options.task,
        name=path.name,
    )


def from_table(
    table: Any,
    *,
    label: str | Sequence[str] | None = None,
    client: str | None = None,
    group: str | None = None,
    groups: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    statistics: tables.Statistics | None = None,
    **rest: Any,
) -> Data:
    """``Data`` of a table with named columns, encoded as ``simulate.data.tables`` says.

    Args:
        table: a pandas, Arrow or ``datasets`` table, or a mapping from names to columns.
        label: column of the labels; several for multi-label and regression, also as one text
            with commas between.
        client: column of the clients.
        group: column of the privacy groups.
        groups: group of each client, instead of ``group``.
        features: columns in the order of the inputs, all other columns when empty; one column of
            lists of whole numbers is token ids.
        statistics: public statistics of each feature.
        **rest: further arguments of ``Data``.

    Raises:
        InputError: for a column that does not exist, or a fault of the statistics.
    """
    columns = tables.columns_of(table)
    labels = label.split(",") if isinstance(label, str) else list(label or ())
    people = {role: name for role, name in (("client", client), ("group", group)) if name}
    values = {role: tables.text_column(columns, role, name) for role, name in people.items()}
    if client is not None and client == group:
        raise InputError.one("group", "must be another column than client", group)
    named = [*labels, *people.values()]
    if len(set(named)) < len(named):
        raise InputError.one("label", "must be another column than client and group", named)
    y = _labels(columns, labels, rest.get("task", MULTI_CLASS))
    inputs = list(features) or [name for name in columns if name not in named]
    for index, name in enumerate(inputs):
        if name in labels:
            raise InputError.one("features", "must not hold the label", name)
        if name in inputs[:index]:
            raise InputError.one("features", "must name each column once", name)
    x = tables.tokens(columns, inputs)
    x = tables.encode(columns, inputs, statistics) if x is None else x
    return Data(x, y, values.get("client"), groups or values.get("group"), **rest)


def _labels(columns: tables.Columns, names: Sequence[str], task: str) -> Any:
    """Labels from columns: names or whole numbers of classes, else numbers [n] or [n, labels].

    Raises:
        InputError: for several columns of classes, or values that are no numbers.
    """
    if task == MULTI_CLASS or not names:
        if len(names) > 1:
            raise InputError.one("label", f"must be one column for {MULTI_CLASS}", ",".join(names))
        return tables.text_column(columns, "label", names[0]) if names else None
    found = [tables.numbers(columns, "label", name) for name in names]
    return found[0] if len(found) == 1 and task != "multi-label" else np.stack(found, 1)


def _npz(path: Path, options: DataOptions, test: Data | None) -> Data:
    if options.statistics is not None:
        rule = "must be left out with NPZ files, whose records are model inputs"
        raise InputError.one("statistics", rule, str(options.statistics))
    with reading(path, "must be an NPZ file of plain arrays"), np.load(path) as file:
        arrays = {name: _plain_array(path, file, name) for name in file.files}

    def array(role: str, name: str | None, default: str) -> np.ndarray | None:
        if name is None:
            return arrays.get(default)
        if name not in arrays:
            raise InputError.one(role, f"must be one of the arrays {', '.join(arrays)}", name)
        return arrays[name]

    if len(options.features) > 1:
        raise InputError.one("features", "must name one array of an NPZ file", options.features)
    x = array("features", options.features[0] if options.features else None, "x")
    y = array("label", options.label, "y")
    for field, default, value in (("features", "x", x), ("label", "y", y)):
        if value is None and not (field == "label" and options.task == "next-token"):
            rule = f"is required for {path.name} without an array {default}"
            raise InputError.one(field, rule, ", ".join(arrays))
    if test is None and "test_x" in arrays:
        of_test = (arrays["test_x"], arrays.get("test_y"), arrays.get("test_client"))
        test = Data(*of_test, task=options.task)
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
    )


def _plain_array(path: Path, file: Any, name: str) -> np.ndarray:
    """An array of an NPZ file.

    Raises:
        InputError: for Python objects, whose loading could run code of the file's author.
    """
    try:
        array: np.ndarray = file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        rule = f"must hold numbers or text in {name}, no Python objects (pickle); convert its dtype"
        raise InputError.one("data", rule, str(path)) from None
    return array


def _folder(folder: Path, options: DataOptions, test: Data | None) -> Data:
    """Images ``CLIENT/CLASS/*.png``, or ``CLASS/*.png`` without clients."""
    if options.task != MULTI_CLASS:
        rule = f"must be {MULTI_CLASS} with a folder of images by class"
        raise InputError.one("task", rule, options.task)
    if options.group is not None:  # the option's former name
        options = replace(options, group=None, groups=Path(options.group))
    for name in ("label", "client", "features"):
        if getattr(options, name):
            rule = "must be left out with a folder, whose layout is CLIENT/CLASS/*.png"
            raise InputError.one(name, rule, str(getattr(options, name)))
    by_client = sorted(folder.glob("*/*/*.[pP][nN][gG]"))
    by_class = sorted(folder.glob("*/*.[pP][nN][gG]"))
    if bool(by_client) == bool(by_class):
        found = "both" if by_client else "no image"
        rule = "must hold either CLIENT/CLASS/*.png or CLASS/*.png"
        raise InputError.one("data", rule, f"{found} in {folder}")
    paths = by_client or by_class
    holding = {path.relative_to(folder).parts[0] for path in paths}
    present = {part.name for part in folder.iterdir() if part.is_dir() and part.name[0] != "."}
    if empty := sorted(present - holding):
        kind = "client" if by_client else "class"
        rule = f"must hold an image for each {kind}; remove empty folders"
        raise InputError.one("data", rule, ", ".join(str(folder / name) for name in empty))
    clients = [path.parent.parent.name for path in paths] if by_client else None
    mean, std = _pixel_statistics(options.statistics)
    return Data(
        _images(paths),
        [path.parent.name for path in paths],
        clients,
        _groups_csv(options),
        test,
        options.test_share,
        classes=sorted({path.parent.name for path in paths} | set(_classes_of(test))),
        name=folder.resolve().name,
        mean=mean,
        std=std,
    )


def _images(paths: Sequence[Path]) -> np.ndarray:
    """Images [n, channels, height, width], uint8; grey ones have one channel, others three."""
    from PIL import Image

    images: list[np.ndarray] = []
    for path in paths:
        with reading(path, "must be a PNG image"), Image.open(path, formats=("PNG",)) as image:
            grey = image.mode in ("L", "1")
            pixels = np.asarray(image.convert("L" if grey else "RGB"))
        images.append(pixels[None] if grey else pixels.transpose(2, 0, 1))
        if images[-1].shape != images[0].shape:
            rule = f"must have images like the first one, {images[0].shape}"
            raise InputError.one("data", rule, f"{path}, {images[-1].shape}")
    return np.stack(images)


def _pixel_statistics(path: Path | None) -> tuple[Any, Any]:
    """Mean and std of pixels, numbers or one per channel; 0 and 255 without a file."""
    if path is None:
        return 0.0, 255.0
    found = tables.read_statistics(path)
    values = []
    for key in ("mean", "std"):
        value: Any = found.get(key)
        numbers = value if isinstance(value, list) else [value]
        if not all(isinstance(one, int | float) and (key == "mean" or one > 0) for one in numbers):
            rule = "must be a number or one per channel; std above 0"
            raise InputError.one(f"statistics.{key}", rule, value)
        values.append(tuple(map(float, numbers)) if isinstance(value, list) else float(value))
    return values[0], values[1]


def _classes_of(test: Data | None) -> tuple[str, ...]:
    """Names of the classes of test records."""
    return () if test is None else test.class_names()


def _groups_csv(options: DataOptions) -> dict[str, str] | None:
    """Group of each client, from a CSV file with the columns client and group; None without."""
    path = options.groups
    if path is None:
        return None
    columns = tables.read_csv(path, "groups")
    clients = [str(name) for name in tables.column(columns, "groups", "client")]
    groups = [str(name) for name in tables.column(columns, "groups", "group")]
    if len(set(clients)) < len(clients):
        raise InputError.one("groups", "must have one line per client", str(path))
    return dict(zip(clients, groups, strict=True))


_READERS: Mapping[str, Callable[[Path, DataOptions, Data | None], Data]] = MappingProxyType(
    {".npz": _npz, ".csv": _table, ".parquet": _table}
)
"""Readers of files by suffix."""
