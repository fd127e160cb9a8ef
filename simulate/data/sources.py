"""Own data from the command line: a file, a folder of images, or a user's function."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from io import BytesIO, StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from privplan.errors import Fault, InputError
from privplan.files import read_json, read_text
from privplan.limits import MOST_PIXELS, most_unpacked, refuse_bomb
from privplan.processes import OWN_MODULES, importable
from simulate.data.dataset import error_line
from simulate.data.own import Data
from simulate.data.registry import opened, read_unpacked, reading
from simulate.tasks import MULTI_CLASS

# --- Tables with named columns as records: public statistics, standardised numbers, categories. --
# A numeric column has ``{"mean": 40, "std": 12, "fill": 38}``; its input is (value - mean) / std. A
# missing value is replaced by ``fill``, which is the mean when left out. A categorical column has
# ``{"categories": ["f", "m"], "fill": "f"}``; its inputs are 1 for the value's category and 0 for
# the others. A missing value is replaced by ``fill``; without ``fill`` all its inputs are 0. Other
# values are refused. Statistics ``none`` take numbers as they are.
#
# Statistics are public constants. They are never computed from the table, because publishing them
# would be a release of the clients' data that no budget pays for.

Columns = Mapping[str, Sequence[Any]]  # values of each column by name
Statistics = Mapping[str, Mapping[str, Any]]  # of each feature by name of its column
_NUMERIC, _CATEGORICAL = {"mean", "std", "fill"}, {"categories", "fill"}
AS_THEY_ARE: Statistics = defaultdict(lambda: {"mean": 0.0, "std": 1.0})
"""Statistics of a table whose columns are standardised already."""
_MISSING = ("", "NA", "NaN", "nan", "null", "None")


def columns_of(table: Any) -> dict[str, Sequence[Any]]:
    """The columns of a pandas, Arrow or ``datasets`` table, or of a mapping of sequences."""
    names = getattr(table, "column_names", None)
    if names is not None and hasattr(table, "to_pydict"):
        columns = dict(table.to_pydict())
    elif names is not None:
        columns = {str(name): _plain(table[name][:]) for name in names}
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        if len({str(name) for name in table.columns}) < len(table.columns):
            raise InputError.one(
                "data", "must have unique names of columns", list(table.columns)
            )
        columns = {str(name): table[name].tolist() for name in table.columns}
    elif isinstance(table, Mapping):
        columns = {str(name): list(values) for name, values in table.items()}
    else:
        rule = "must be a pandas, Arrow or datasets table, or a mapping of columns"
        raise InputError.one("data", rule, type(table).__name__)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError.one("data", "must have columns of one length", lengths)
    return columns


def _plain(values: Any) -> Sequence[Any]:
    """Values of a column of a ``datasets`` table, also of one in the format of torch or NumPy."""
    if not hasattr(values, "tolist"):
        return [
            value.tolist() if hasattr(value, "tolist") else value for value in values
        ]
    plain: list[Any] = values.tolist()
    return plain


def read_parquet(path: Path) -> dict[str, Sequence[Any]]:
    """The columns of a Parquet file."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        rule = "Parquet files need pyarrow: pip install 'privplan[tables]'"
        raise InputError.one("data", rule, str(path)) from None
    with reading(path, "must be a Parquet file"):
        content, most = read_unpacked(path), most_unpacked(path.stat().st_size)
        file = parquet.ParquetFile(BytesIO(content))
        groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
        columns = [one.column(at) for one in groups for at in range(one.num_columns)]
        size = sum(
            max(c.total_uncompressed_size, VALUE_BYTES * c.num_values) for c in columns
        )
        texts = [one.name for one in file.schema_arrow if str(one.type) in _TEXTS]
        if (
            size <= most
        ):  # texts stay in a dictionary until it is known how long they are
            table = parquet.read_table(BytesIO(content), read_dictionary=texts)
            size += sum(
                _letters(chunk) for one in table.columns for chunk in one.chunks
            )
        if size > most:
            raise InputError.one("data", f"must unpack to at most {most} bytes", size)
        return columns_of(table)


VALUE_BYTES = 4  # bytes that a value of a Parquet file is counted as, at least
_TEXTS = ("string", "large_string", "binary", "large_binary")


def _letters(column: Any) -> int:
    """Bytes of the texts of a column of dictionary indices; 0 of other columns."""
    from pyarrow import compute

    if str(getattr(column.type, "value_type", "")) not in _TEXTS or not hasattr(
        column, "indices"
    ):
        return 0
    lengths = compute.take(compute.binary_length(column.dictionary), column.indices)
    return compute.sum(lengths).as_py() or 0


def read_csv(path: Path, field: str = "data") -> dict[str, list[str]]:
    """The columns of a CSV file; its separator is the one that the header has most often."""
    import csv

    text = read_text(path, field).removeprefix(
        "\ufeff"
    )  # a byte order mark, as spreadsheets write
    separator = max(",;\t", key=text.partition("\n")[0].count)
    content = StringIO(text, newline="")  # keeps line breaks in quoted fields
    rows = csv.reader(content, delimiter=separator, skipinitialspace=True, strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        lines = [(rows.line_num, line) for line in rows if line]
    except csv.Error as error:
        raise InputError.one(
            field, f"must be a CSV file ({error})", str(path)
        ) from None
    if not header or not lines:
        raise InputError.one(
            field, "must have a header and a line per record", str(path)
        )
    if len(set(header)) != len(header):
        raise InputError.one(field, "must have unique names of columns", header)
    for number, line in lines:
        if len(line) != len(header):
            rule = f"must have the {len(header)} fields of the header in line {number}"
            raise InputError.one(field, rule, len(line))
    values = zip(*(line for _, line in lines), strict=True)
    return {name: list(column) for name, column in zip(header, values, strict=True)}


def read_statistics(path: Path) -> Statistics:
    """The public statistics in a JSON file."""
    content: Any = read_json(path, "statistics")
    if not isinstance(content, dict):
        rule = "must be a mapping from columns to their statistics"
        raise InputError.one("statistics", rule, type(content).__name__)
    return content


def column(columns: Columns, role: str, name: str) -> Sequence[Any]:
    """The values of a column."""
    if name not in columns:
        raise InputError.one(
            role, f"must be one of the columns {', '.join(columns)}", name
        )
    return columns[name]


def text_column(columns: Columns, role: str, name: str) -> list[Any]:
    """The values of a column of labels, clients or groups; whole numbers written as text as int."""
    texts = [str(value) for value in _present(columns, role, name)]
    return [int(text) for text in texts] if all(map(_is_whole, texts)) else texts


def numbers(columns: Columns, role: str, name: str) -> np.ndarray:
    """The values of a column of numbers [n], float32."""
    values = enumerate(_present(columns, role, name))
    return np.array(
        [_number(role, name, row, value) for row, value in values], np.float32
    )


def _present(columns: Columns, role: str, name: str) -> Sequence[Any]:
    """The values of a column, none of which is missing."""
    values = column(columns, role, name)
    missing = [row for row, value in enumerate(values) if _is_missing(value)]
    if missing:
        raise InputError.one(
            role, f"must not be missing in {name}", f"record {missing[0]}"
        )
    return values


def tokens(columns: Columns, names: Sequence[str]) -> np.ndarray | None:
    """Token ids [n, T] of a single column of lists; None for columns of other values."""
    if len(names) != 1 or names[0] not in columns:
        return None
    values = columns[names[0]]
    if not len(values) or not isinstance(values[0], list | tuple | np.ndarray):
        return None
    lengths = {len(value) for value in values}
    if len(lengths) > 1:
        rule = f"must have lists of one length in {names[0]}; pad them"
        raise InputError.one("data", rule, sorted(lengths)[:3])
    found = np.array([list(value) for value in values])
    if found.ndim != 2 or found.dtype.kind not in "iu":
        raise InputError.one(
            "data", f"must have whole numbers in {names[0]}", str(values[0])[:40]
        )
    return found.astype(np.int64)


def encode(
    columns: Columns, features: Iterable[str], statistics: Statistics | None
) -> np.ndarray:
    """Inputs of the features' columns [n, inputs], float32, as the module's description says."""
    names = list(features)
    if statistics is None:
        rule = "must be given for a table: FILE.json with public mean and std or categories of "
        rule += "each column (fitted on private data they would be a release), or the word none "
        raise InputError.one(
            "statistics", rule + "where all columns are standardised", "nothing"
        )
    if not names:
        raise InputError.one("features", "must name a column", names)
    absent = (
        ()
        if statistics is AS_THEY_ARE
        else [one for one in statistics if one not in columns]
    )
    rule = f"must be of a column of the table, which has {', '.join(columns)}"
    faults = [Fault(f"statistics.{name}", rule, name) for name in absent]
    for name in names:
        if name not in columns:
            rule = f"must be among the columns {', '.join(columns)}"
            faults.append(Fault("features", rule, name))
        elif statistics is not AS_THEY_ARE and name not in statistics:
            rule = "must have mean and std, or categories, for a feature (--features names them)"
            faults.append(Fault(f"statistics.{name}", rule, "nothing"))
        else:
            faults += _statistics_faults(f"statistics.{name}", statistics[name])
    if faults:
        raise InputError(faults)
    return np.concatenate(
        [_encoded(name, columns[name], statistics[name]) for name in names], 1
    )


def _statistics_faults(where: str, found: Any) -> list[Fault]:
    """Faults of the statistics of one column."""
    if not isinstance(found, Mapping) or not (
        {"mean", "std"} <= set(found) <= _NUMERIC
        or {"categories"} <= set(found) <= _CATEGORICAL
    ):
        rule = (
            "must have mean and std, or categories; and fill where values are missing"
        )
        return [Fault(where, rule, found)]
    if "categories" in found:
        categories = found["categories"]
        if not isinstance(categories, list) or len(set(map(str, categories))) != len(
            categories
        ):
            return [
                Fault(
                    f"{where}.categories", "must be a list of unique values", categories
                )
            ]
        if "fill" in found and str(found["fill"]) not in map(str, categories):
            return [
                Fault(f"{where}.fill", "must be one of the categories", found["fill"])
            ]
        return []
    faults = [
        Fault(f"{where}.{key}", "must be a finite number", value)
        for key, value in found.items()
        if isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
    ]
    if not faults and found["std"] <= 0:
        faults.append(Fault(f"{where}.std", "must be above 0", found["std"]))
    return faults


def _encoded(name: str, values: Sequence[Any], known: Mapping[str, Any]) -> np.ndarray:
    """Inputs of one column [n, inputs]."""
    categories = known.get("categories")
    if categories is None:
        fill = known.get("fill", known["mean"])
        numbers = [
            float(fill) if _is_missing(value) else _number("data", name, row, value)
            for row, value in enumerate(values)
        ]
        return np.asarray(
            (np.array(numbers)[:, None] - known["mean"]) / known["std"], np.float32
        )
    index = {str(value): number for number, value in enumerate(categories)}
    encoded = np.zeros((len(values), len(index)), np.float32)
    for row, value in enumerate(values):
        shown = str(known.get("fill") if _is_missing(value) else value)
        if shown in index:
            encoded[row, index[shown]] = 1.0
        elif not _is_missing(value):
            rule = f"must be one of the {len(index)} categories of {name}, record {row}"
            raise InputError.one("data", rule, value)
    return encoded


def _number(field: str, name: str, row: int, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError.one(
            field, f"must have numbers in {name}, record {row}", str(value)
        )
    return number


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in _MISSING
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def _is_whole(text: str) -> bool:
    short = len(text) < 18
    return (
        short
        and text.isascii()
        and text.removeprefix("-").isdigit()
        and str(int(text)) == text
    )


# --- Own data from the command line: a file, a folder of images, or a user's function. -----------

FORMS = (
    "FILE.npz, FILE.csv, FILE.parquet, a folder of images, or package.module:function"
)


@dataclass(frozen=True)
class DataOptions:
    """How a file or folder is read; of a table, the first three and features name columns."""

    label: str | None = None  # several columns with commas between
    client: str | None = None
    group: str | None = None
    groups: Path | None = (
        None  # CSV file with columns client and group, instead of group
    )
    features: tuple[
        str, ...
    ] = ()  # in the order of the inputs; all other columns when empty
    statistics: Path | None = None  # JSON file of public statistics
    test: Path | None = None  # file or folder with the test records, of the same form
    # whether the people of the test records are no clients, as the user says
    test_of_others: bool = False
    test_share: float | None = None  # of each client's records
    task: str = MULTI_CLASS


def load_own(source: str, options: DataOptions) -> Data:
    """The data that a command line names."""
    path = Path(source)
    read = _folder if path.is_dir() else _READERS.get(path.suffix.lower())
    if read is not None:
        if options.group is not None and options.groups is not None:
            rule = (
                "must be left out with --groups, which names the group of each client"
            )
            raise InputError.one("group", rule, options.group)
        if options.test is None:
            return _of_others(read(path, options, None), options)
        if not (
            options.test.is_dir()
            if path.is_dir()
            else options.test.suffix == path.suffix
        ):
            form = "a folder" if path.is_dir() else f"a {path.suffix} file"
            raise InputError.one(
                "test", f"must be {form}, like the data", str(options.test)
            )
        of_test = replace(
            options, test=None, test_share=None, groups=None, test_of_others=False
        )
        try:
            test = read(options.test, of_test, None)
        except InputError as error:
            faults = [
                Fault(f"test.{one.field}", one.rule, one.found) for one in error.faults
            ]
            raise InputError(faults) from None
        return _of_others(read(path, options, test), options)
    if ":" not in source or path.exists():
        raise InputError.one("data", f"must be {FORMS}", source)
    given = imported("data", source)
    try:
        with importable(str(Path.cwd())):
            made = given() if callable(given) else given
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        raise InputError.one(
            "data", "must be made without an error", error_line(error)
        ) from None
    if not isinstance(made, Data):
        rule = f"must be a function that returns simulate.Data ({source})"
        raise InputError.one("data", rule, type(made).__name__)
    for field in fields(DataOptions):
        value = getattr(options, field.name)
        if value != field.default and not (field.name == "task" and value == made.task):
            rule = "must be left out with data that a function returns"
            raise InputError.one(field.name, rule, str(value))
    return made


def load_file(source: Path | str, options: Mapping[str, Any]) -> Data:
    """The data in a file or folder, which is never imported as code."""
    known = [field.name for field in fields(DataOptions)]
    values = dict(options)
    for name, value in options.items():
        if name not in known:
            raise InputError.one(
                "data", f"options must be among {', '.join(known)}", name
            )
        if name in ("groups", "statistics", "test") and value is not None:
            if not isinstance(value, str | Path):
                raise InputError.one(
                    name, "must be the path of a file", type(value).__name__
                )
            values[name] = Path(value)
    if not Path(source).exists():
        raise InputError.one("data", "must be a file or folder", str(source))
    return load_own(str(source), DataOptions(**values))


def imported(field: str, text: str) -> Any:
    """The object that ``package.module:name`` names; also modules of the working directory."""
    module, _, name = text.partition(":")
    if not (
        all(part.isidentifier() for part in module.split(".")) and name.isidentifier()
    ):
        raise InputError.one(field, "must be package.module:name", text)
    folder = str(Path.cwd())
    try:
        with importable(folder):
            found = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        raise InputError.one(
            field, f"must be importable as {text}", error_line(error)
        ) from None
    OWN_MODULES.append((folder, module))
    return found


def _of_others(data: Data, options: DataOptions) -> Data:
    """The data, with what the user says of the people of their test records."""
    return replace(data, test_of_others=True) if options.test_of_others else data


def _table(path: Path, options: DataOptions, test: Data | None) -> Data:
    if options.label is None and options.task != "next-token":
        raise InputError.one(
            "label", "is required for a table: the column of labels", "none"
        )
    columns = read_csv(path) if path.suffix.lower() == ".csv" else read_parquet(path)
    path_of = options.statistics
    statistics: Statistics | None = None
    if path_of is not None:
        statistics = AS_THEY_ARE if str(path_of) == "none" else read_statistics(path_of)
    return from_table(
        columns, label=options.label, client=options.client, group=options.group,
        groups=_groups_csv(options), features=options.features, statistics=statistics, test=test,
        test_share=options.test_share, task=options.task, name=path.name,
    )  # fmt: skip


def from_table(
    table: Any,
    *,
    label: str | Sequence[str] | None = None,
    client: str | None = None,
    group: str | None = None,
    groups: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    statistics: Statistics | None = None,
    **rest: Any,
) -> Data:
    """``Data`` of a table with named columns, encoded as ``simulate.data.sources`` says."""
    columns = columns_of(table)
    labels = label.split(",") if isinstance(label, str) else list(label or ())
    people = {
        role: name for role, name in (("client", client), ("group", group)) if name
    }
    values = {role: text_column(columns, role, name) for role, name in people.items()}
    if client is not None and client == group:
        raise InputError.one("group", "must be another column than client", group)
    named = [*labels, *people.values()]
    if len(set(named)) < len(named):
        raise InputError.one(
            "label", "must be another column than client and group", named
        )
    y = _labels(columns, labels, rest.get("task", MULTI_CLASS))
    inputs = list(features) or [name for name in columns if name not in named]
    for name, times in Counter(inputs).items():
        if name in labels:
            raise InputError.one("features", "must not hold the label", name)
        if times > 1:
            raise InputError.one("features", "must name each column once", name)
    x = tokens(columns, inputs)
    x = encode(columns, inputs, statistics) if x is None else x
    return Data(x, y, values.get("client"), groups or values.get("group"), **rest)


def _labels(columns: Columns, names: Sequence[str], task: str) -> Any:
    """Labels from columns: names or whole numbers of classes, else numbers [n] or [n, labels]."""
    if task == MULTI_CLASS or not names:
        if len(names) > 1:
            raise InputError.one(
                "label", f"must be one column for {MULTI_CLASS}", ",".join(names)
            )
        return text_column(columns, "label", names[0]) if names else None
    found = [numbers(columns, "label", name) for name in names]
    return found[0] if len(found) == 1 and task != "multi-label" else np.stack(found, 1)


def _npz(path: Path, options: DataOptions, test: Data | None) -> Data:
    if options.statistics is not None:
        rule = "must be left out with NPZ files, whose records are model inputs"
        raise InputError.one("statistics", rule, str(options.statistics))
    with reading(path, "must be an NPZ file of numbers and texts"):
        refuse_bomb(path, "data")
        file = np.load(path)
        arrays: dict[str, np.ndarray] = {name: file[name] for name in file.files}

    def array(role: str, name: str | None, default: str) -> np.ndarray | None:
        if name is None:
            return arrays.get(default)
        if name not in arrays:
            raise InputError.one(
                role, f"must be one of the arrays {', '.join(arrays)}", name
            )
        return arrays[name]

    if len(options.features) > 1:
        raise InputError.one(
            "features", "must name one array of an NPZ file", options.features
        )
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


def _folder(folder: Path, options: DataOptions, test: Data | None) -> Data:
    """Images ``CLIENT/CLASS/*.png``, or ``CLASS/*.png`` without clients."""
    if options.task != MULTI_CLASS:
        rule = f"must be {MULTI_CLASS} with a folder of images by class"
        raise InputError.one("task", rule, options.task)
    for name in ("label", "client", "group", "features", "statistics"):
        if getattr(options, name):
            rule = "must be left out with a folder of images; join several tables into one file"
            raise InputError.one(name, rule, str(getattr(options, name)))
    by_client = sorted(folder.glob("*/*/*.[pP][nN][gG]"))
    by_class = sorted(folder.glob("*/*.[pP][nN][gG]"))
    if bool(by_client) == bool(by_class):
        found = "both" if by_client else "no image"
        rule = "must hold either CLIENT/CLASS/*.png or CLASS/*.png"
        raise InputError.one("data", rule, f"{found} in {folder}")
    paths = by_client or by_class
    clients = [path.parent.parent.name for path in paths] if by_client else None
    classes = {path.parent.name for path in paths} | set(
        test.class_names() if test else ()
    )
    return Data(
        _images(paths),
        [path.parent.name for path in paths],
        clients,
        _groups_csv(options),
        test,
        options.test_share,
        classes=sorted(classes),
        name=folder.resolve().name,
        mean=0.0,
        std=255.0,
    )


def _images(paths: Sequence[Path]) -> np.ndarray:
    """Images [n, channels, height, width], uint8; grey ones have one channel, others three."""
    from PIL import Image

    images: list[np.ndarray] = []
    most = most_unpacked(sum(path.stat().st_size for path in paths))
    for path in paths:
        rule = f"must be a PNG image of at most {MOST_PIXELS} pixels"
        with (
            reading(path, rule),
            opened(path) as file,
            Image.open(file, formats=("PNG",)) as image,
        ):
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"{image.width} x {image.height}")
            grey = image.mode in ("L", "1")
            pixels = np.asarray(image.convert("L" if grey else "RGB"))
        images.append(pixels[None] if grey else pixels.transpose(2, 0, 1))
        if images[-1].shape != images[0].shape:
            rule = f"must have images like the first one, {images[0].shape}"
            raise InputError.one("data", rule, f"{path}, {images[-1].shape}")
        if len(images) == 1 and (size := len(paths) * images[0].nbytes) > most:
            raise InputError.one("data", f"must unpack to at most {most} bytes", size)
    return np.stack(images)


def _groups_csv(options: DataOptions) -> dict[str, str] | None:
    """Group of each client, from a CSV file with the columns client and group; None without."""
    path = options.groups
    if path is None:
        return None
    columns = read_csv(path, "groups")
    clients, groups = (column(columns, "groups", name) for name in ("client", "group"))
    if len(set(clients)) < len(clients):
        raise InputError.one("groups", "must have one line per client", str(path))
    return dict(zip(clients, groups, strict=True))


_READERS: Mapping[str, Callable[[Path, DataOptions, Data | None], Data]] = (
    MappingProxyType({".npz": _npz, ".csv": _table, ".parquet": _table})
)
"""Readers of files by suffix."""
