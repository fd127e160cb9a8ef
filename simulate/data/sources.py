"""Own data from the command line: an NPZ or CSV file, a folder of images, or a user's function."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError
from simulate.data import tables
from simulate.data.files import reading
from simulate.data.own import Data, said

FORMS = "FILE.npz, FILE.csv, a folder of images, or package.module:function"


@dataclass(frozen=True)
class DataOptions:
    """How a file or folder is read.

    Attributes:
        label: column or array of the labels.
        client: column or array of the clients.
        group: column or array of the privacy groups; for a folder of images a CSV file with the
            columns ``client`` and ``group``.
        features: columns of a table in the order of the inputs, all others when empty; or the
            array of the records.
        statistics: JSON file of public statistics.
        test_share: share of each client's records that is split off for testing.
    """

    label: str | None = None
    client: str | None = None
    group: str | None = None
    features: tuple[str, ...] = ()
    statistics: Path | None = None
    test_share: float | None = None


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
    if path.is_dir():
        return _folder(path, options)
    if path.suffix in (".npz", ".csv"):
        return (_npz if path.suffix == ".npz" else _csv)(path, options)
    if ":" not in source or path.exists():
        raise InputError.one("data", f"must be {FORMS}", source)
    given = imported("data", source)
    try:
        made = given() if callable(given) else given
    except Exception as error:  # the user's code can fail in any way
        raise InputError.one("data", "must be made without an error", said(error)) from None
    if not isinstance(made, Data):
        rule = f"must be a function that returns simulate.Data ({source})"
        raise InputError.one("data", rule, type(made).__name__)
    for name in ("label", "client", "group", "features", "statistics", "test_share"):
        if getattr(options, name):
            rule = "must be left out with data that a function returns"
            raise InputError.one(name, rule, str(getattr(options, name)))
    return made


def imported(field: str, text: str) -> Any:
    """The object that ``package.module:name`` names; also modules of the working directory.

    Raises:
        InputError: when the text has another form, or the import fails.
    """
    module, _, name = text.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and name.isidentifier()):
        raise InputError.one(field, "must be package.module:name", text)
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        return getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        raise InputError.one(field, f"must be importable as {text}", said(error)) from None
    finally:
        if added:
            sys.path.remove(folder)


def _csv(path: Path, options: DataOptions) -> Data:
    if options.label is None:
        raise InputError.one("label", "is required for a table: the column of labels", "none")
    columns = tables.read_csv(path)
    statistics = None
    if options.statistics is not None:
        statistics = tables.read_statistics(options.statistics)
    return from_table(
        columns,
        label=options.label,
        client=options.client,
        group=options.group,
        features=options.features,
        statistics=statistics,
        test_share=options.test_share,
        name=path.name,
    )


def from_table(
    table: Any,
    *,
    label: str,
    client: str | None = None,
    group: str | None = None,
    features: Sequence[str] = (),
    statistics: tables.Statistics | None = None,
    **rest: Any,
) -> Data:
    """``Data`` of a table with named columns, encoded as ``simulate.data.tables`` says.

    Args:
        table: a pandas, Arrow or ``datasets`` table, or a mapping from names to columns.
        label: column of the labels.
        client: column of the clients.
        group: column of the privacy groups.
        features: columns in the order of the inputs; all other columns when empty.
        statistics: public statistics of each feature.
        **rest: further arguments of ``Data``.

    Raises:
        InputError: for a column that does not exist, or a fault of the statistics.
    """
    columns = tables.columns_of(table)
    roles = {"label": label, "client": client, "group": group}
    values = {
        role: tables.text_column(columns, role, name)
        for role, name in roles.items()
        if name is not None
    }
    named = [name for name in roles.values() if name is not None]
    if len(set(named)) < len(named):
        raise InputError.one("label", "must be another column than client and group", named)
    inputs = list(features) or [name for name in columns if name not in named]
    for name in inputs:
        if name == label:
            raise InputError.one("features", "must not hold the label", name)
    x = tables.encode(columns, inputs, statistics)
    return Data(x, values["label"], values.get("client"), values.get("group"), **rest)


def _npz(path: Path, options: DataOptions) -> Data:
    if options.statistics is not None:
        rule = "must be left out with NPZ files, whose records are model inputs"
        raise InputError.one("statistics", rule, str(options.statistics))
    with reading(path, "must be an NPZ file of plain arrays"), np.load(path) as file:
        arrays: dict[str, np.ndarray] = {name: file[name] for name in file.files}

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
        if value is None:
            rule = f"is required for {path.name} without an array {default}"
            raise InputError.one(field, rule, ", ".join(arrays))
    test = None
    if "test_x" in arrays and "test_y" in arrays:
        test = Data(arrays["test_x"], arrays["test_y"], arrays.get("test_client"))
    return Data(
        x,
        y,
        array("client", options.client, "client"),
        array("group", options.group, "group"),
        test,
        options.test_share,
        name=path.name,
    )


def _folder(folder: Path, options: DataOptions) -> Data:
    """Images ``CLIENT/CLASS/*.png``, or ``CLASS/*.png`` without clients."""
    for name in ("label", "client", "features"):
        if getattr(options, name):
            rule = "must be left out with a folder, whose layout is CLIENT/CLASS/*.png"
            raise InputError.one(name, rule, str(getattr(options, name)))
    by_client = sorted(folder.glob("*/*/*.png"))
    by_class = sorted(folder.glob("*/*.png"))
    if bool(by_client) == bool(by_class):
        found = "both" if by_client else "no image"
        rule = "must hold either CLIENT/CLASS/*.png or CLASS/*.png"
        raise InputError.one("data", rule, f"{found} in {folder}")
    paths = by_client or by_class
    clients = [path.parent.parent.name for path in paths] if by_client else None
    mean, std = _pixel_statistics(options.statistics)
    return Data(
        _images(paths),
        [path.parent.name for path in paths],
        clients,
        None if options.group is None else _groups_csv(Path(options.group)),
        test_share=options.test_share,
        classes=sorted({path.parent.name for path in paths}),
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


def _groups_csv(path: Path) -> dict[str, str]:
    """Group of each client, from a CSV file with the columns client and group."""
    columns = tables.read_csv(path)
    clients = [str(name) for name in tables.column(columns, "group", "client")]
    groups = [str(name) for name in tables.column(columns, "group", "group")]
    if len(set(clients)) < len(clients):
        raise InputError.one("group", "must have one line per client", str(path))
    return dict(zip(clients, groups, strict=True))
