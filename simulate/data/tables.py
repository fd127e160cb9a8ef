"""Tables with named columns as records: public statistics, standardised numbers, categories.

The encoding has one input per numeric column and one per category, in the order of the features:

- A numeric column has ``{"mean": 40, "std": 12, "fill": 38}``; its input is (value - mean) / std. A
  missing value is replaced by ``fill``, which is the mean when left out.
- A categorical column has ``{"categories": ["f", "m"], "fill": "f"}``; its inputs are 1 for the
  value's category and 0 for the others. A missing value is replaced by ``fill``; without ``fill``
  all its inputs are 0. So are those of a value that is none of the categories.

Statistics are public constants. They are never computed from the table, because publishing them
would be a release of the clients' data that no budget pays for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import Fault, InputError
from privplan.io.files import read_text
from simulate.data.files import reading

Columns = Mapping[str, Sequence[Any]]
"""Values of each column by name."""
Statistics = Mapping[str, Mapping[str, Any]]
"""Public statistics of each feature by name of its column."""
_NUMERIC, _CATEGORICAL = {"mean", "std", "fill"}, {"categories", "fill"}
_MISSING = ("", "NA", "NaN", "nan", "null", "None")


def columns_of(table: Any) -> dict[str, Sequence[Any]]:
    """The columns of a pandas, Arrow or ``datasets`` table, or of a mapping of sequences.

    Raises:
        InputError: for another type, or columns of several lengths.
    """
    names = getattr(table, "column_names", None)
    if names is not None and hasattr(table, "to_pydict"):
        columns = dict(table.to_pydict())
    elif names is not None:
        columns = {str(name): _plain(table[name][:]) for name in names}
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        if len({str(name) for name in table.columns}) < len(table.columns):
            raise InputError.one("data", "must have unique names of columns", list(table.columns))
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
    found: Sequence[Any] = (
        values.tolist()
        if hasattr(values, "tolist")
        else [value.tolist() if hasattr(value, "tolist") else value for value in values]
    )
    return found


def read_parquet(path: Path) -> dict[str, Sequence[Any]]:
    """The columns of a Parquet file.

    Raises:
        InputError: when it cannot be read, or pyarrow is not installed.
    """
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        rule = "Parquet files need pyarrow: pip install 'privplan[tables]'"
        raise InputError.one("data", rule, str(path)) from None
    with reading(path, "must be a Parquet file"):
        return columns_of(parquet.read_table(path))


def read_csv(path: Path, field: str = "data") -> dict[str, list[str]]:
    """The columns of a CSV file with a header, separated by commas, semicolons or tabs.

    The separator is the one that the header has most often. Empty lines are left out.

    Raises:
        InputError: when it cannot be read, has no header, or a line has another number of fields.
    """
    import csv

    text = read_text(path, field).removeprefix("\ufeff")  # a byte order mark, as spreadsheets write
    separator = max(",;\t", key=text.partition("\n")[0].count)
    content = StringIO(text, newline="")  # keeps line breaks in quoted fields
    rows = csv.reader(content, delimiter=separator, skipinitialspace=True, strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        lines = [(rows.line_num, line) for line in rows if line]
    except csv.Error as error:
        raise InputError.one(field, f"must be a CSV file ({error})", str(path)) from None
    if not header or not lines:
        raise InputError.one(field, "must have a header and a line per record", str(path))
    if len(set(header)) != len(header):
        raise InputError.one(field, "must have unique names of columns", header)
    for number, line in lines:
        if len(line) != len(header):
            rule = f"must have the {len(header)} fields of the header in line {number}"
            raise InputError.one(field, rule, len(line))
    values = zip(*(line for _, line in lines), strict=True)
    return {name: list(column) for name, column in zip(header, values, strict=True)}


def read_statistics(path: Path) -> Statistics:
    """The public statistics in a JSON file.

    Raises:
        InputError: when it cannot be read or is no JSON object.
    """
    try:
        content = json.loads(read_text(path, "statistics"))
    except (ValueError, RecursionError):
        raise InputError.one("statistics", "must be JSON", str(path)) from None
    if not isinstance(content, dict):
        rule = "must be a mapping from columns to their statistics"
        raise InputError.one("statistics", rule, type(content).__name__)
    return content


def column(columns: Columns, role: str, name: str) -> Sequence[Any]:
    """The values of a column.

    Raises:
        InputError: when there is none of this name.
    """
    if name not in columns:
        raise InputError.one(role, f"must be one of the columns {', '.join(columns)}", name)
    return columns[name]


def text_column(columns: Columns, role: str, name: str) -> list[Any]:
    """The values of a column of labels, clients or groups; whole numbers written as text as int.

    Raises:
        InputError: when there is no such column, or a value is missing.
    """
    values = list(column(columns, role, name))
    missing = [row for row, value in enumerate(values) if _is_missing(value)]
    if missing:
        raise InputError.one(role, f"must not be missing in {name}", f"record {missing[0]}")
    texts = [str(value) for value in values]
    return [int(text) for text in texts] if all(map(_is_whole, texts)) else texts


def numbers(columns: Columns, role: str, name: str) -> np.ndarray:
    """The values of a column of numbers [n], float32.

    Raises:
        InputError: when there is no such column, or a value is missing or no number.
    """
    values = column(columns, role, name)
    for row, value in enumerate(values):
        if _is_missing(value):
            raise InputError.one(role, f"must not be missing in {name}", f"record {row}")
    found = [_number(role, name, row, value) for row, value in enumerate(values)]
    return np.array(found, np.float32)


def tokens(columns: Columns, names: Sequence[str]) -> np.ndarray | None:
    """Token ids [n, T] of a single column of lists; None for columns of other values.

    Raises:
        InputError: for lists of several lengths, or other than whole numbers.
    """
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
        raise InputError.one("data", f"must have whole numbers in {names[0]}", str(values[0])[:40])
    return found.astype(np.int64)


def encode(columns: Columns, features: Iterable[str], statistics: Statistics | None) -> np.ndarray:
    """Inputs of the features' columns [n, inputs], float32, as the module's description says.

    Args:
        columns: the table.
        features: names of columns, in the order of the inputs.
        statistics: public statistics of each of them.

    Raises:
        InputError: without statistics, or with every fault of them; and for the first value of a
            numeric column that is not a number.
    """
    names = list(features)
    if statistics is None:
        rule = "is required for a table: fitted on private data, they would be a release"
        raise InputError.one("statistics", rule, "none")
    if not names:
        raise InputError.one("features", "must name a column", names)
    faults = []
    for name in names:
        if name not in columns:
            rule = f"must be among the columns {', '.join(columns)}"
            faults.append(Fault("features", rule, name))
        elif name not in statistics:
            faults.append(Fault(f"statistics.{name}", "is required for a feature", "none"))
        else:
            faults += _statistics_faults(f"statistics.{name}", statistics[name])
    if faults:
        raise InputError(faults)
    parts = [_encoded(name, columns[name], statistics[name]) for name in names]
    return np.concatenate(parts, 1)


def input_names(features: Iterable[str], statistics: Statistics) -> list[str]:
    """Names of the inputs of the features, such as ``age`` and ``sex=f``."""
    names = []
    for name in features:
        categories = statistics[name].get("categories")
        names += [name] if categories is None else [f"{name}={value}" for value in categories]
    return names


def _statistics_faults(where: str, found: Any) -> list[Fault]:
    """Faults of the statistics of one column."""
    if not isinstance(found, Mapping) or not (
        {"mean", "std"} <= set(found) <= _NUMERIC or {"categories"} <= set(found) <= _CATEGORICAL
    ):
        rule = "must have mean and std, or categories; and fill where values are missing"
        return [Fault(where, rule, found)]
    if "categories" in found:
        categories = found["categories"]
        if not isinstance(categories, list) or len(set(map(str, categories))) != len(categories):
            return [Fault(f"{where}.categories", "must be a list of unique values", categories)]
        if "fill" in found and str(found["fill"]) not in map(str, categories):
            return [Fault(f"{where}.fill", "must be one of the categories", found["fill"])]
        return []
    faults = [
        Fault(f"{where}.{key}", "must be a finite number", value)
        for key, value in found.items()
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
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
        inputs = (np.array(numbers)[:, None] - known["mean"]) / known["std"]
        return np.asarray(inputs, np.float32)
    index = {str(value): number for number, value in enumerate(categories)}
    encoded = np.zeros((len(values), len(index)), np.float32)
    for row, value in enumerate(values):
        place = index.get(str(known.get("fill") if _is_missing(value) else value))
        if place is not None:
            encoded[row, place] = 1.0
    return encoded


def _number(field: str, name: str, row: int, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError.one(field, f"must have numbers in {name}, record {row}", str(value))
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
    return short and text.isascii() and text.removeprefix("-").isdigit() and str(int(text)) == text
