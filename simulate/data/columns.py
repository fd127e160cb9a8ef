"""Tables with named columns: from files or of other libraries, and their values."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.files import read_text
from privplan.limits import most_unpacked
from simulate.data.reading import one_line_errors, read_unpacked

Columns = Mapping[str, Sequence[Any]]
"""Values of each column by name."""
_MISSING = ("", "NA", "NaN", "nan", "null", "None")
VALUE_BYTES = 4  # bytes that a value of a Parquet file is counted as, at least
_TEXTS = ("string", "large_string", "binary", "large_binary")
# A whole number of so many characters is below 2^63.
_INTEGER_CHARACTERS = 17


def columns_of(table: Any) -> dict[str, Sequence[Any]]:
    """The columns of a pandas, Arrow or ``datasets`` table, or mapping of sequences."""
    names = getattr(table, "column_names", None)
    if names is not None and hasattr(table, "to_pydict"):
        columns = dict(table.to_pydict())
    elif names is not None:
        columns = {str(name): _plain(table[name][:]) for name in names}
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        if len({str(name) for name in table.columns}) < len(table.columns):
            rule = "must have unique names of columns"
            raise InputError.one("data", rule, list(table.columns))
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
    """Values of a column of a ``datasets`` table, also as torch or NumPy has them."""
    if not hasattr(values, "tolist"):
        return [
            value.tolist() if hasattr(value, "tolist") else value for value in values
        ]
    plain: list[Any] = values.tolist()
    return plain


def read_parquet(path: Path) -> dict[str, Sequence[Any]]:
    """The columns of a Parquet file, which may not unpack to far more than its size."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        rule = "Parquet files need pyarrow: pip install 'privplan[tables]'"
        raise InputError.one("data", rule, str(path)) from None
    with one_line_errors(path, "must be a Parquet file"):
        content = read_unpacked(path)
        limit = most_unpacked(path.stat().st_size)
        file = parquet.ParquetFile(BytesIO(content))
        size = _claimed_bytes(file.metadata)
        # Texts stay in a dictionary until it is known how long they are.
        if size <= limit:
            texts = [
                field.name for field in file.schema_arrow if str(field.type) in _TEXTS
            ]
            table = parquet.read_table(BytesIO(content), read_dictionary=texts)
            for column_ in table.columns:
                size += sum(map(_text_bytes, column_.chunks))
        if size > limit:
            raise InputError.one("data", f"must unpack to at most {limit} bytes", size)
        return columns_of(table)


def _claimed_bytes(metadata: Any) -> int:
    """Bytes that a Parquet file unpacks to, as it says itself."""
    size = 0
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for column_index in range(group.num_columns):
            chunk = group.column(column_index)
            least_bytes = VALUE_BYTES * chunk.num_values
            size += max(chunk.total_uncompressed_size, least_bytes)
    return size


def _text_bytes(chunk: Any) -> int:
    """Bytes of the texts of a column of dictionary indices; 0 of other columns."""
    from pyarrow import compute

    value_type = str(getattr(chunk.type, "value_type", ""))
    if value_type not in _TEXTS or not hasattr(chunk, "indices"):
        return 0
    lengths = compute.take(compute.binary_length(chunk.dictionary), chunk.indices)
    return compute.sum(lengths).as_py() or 0


def read_csv(path: Path, field: str = "data") -> dict[str, list[str]]:
    """The columns of a CSV file; its separator is the one most often in the header."""
    # Spreadsheets write a byte order mark.
    text = read_text(path, field).removeprefix("\ufeff")
    separator = max(",;\t", key=text.partition("\n")[0].count)
    content = StringIO(text, newline="")  # keeps line breaks in quoted fields
    rows = csv.reader(content, delimiter=separator, skipinitialspace=True, strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        lines = [(rows.line_num, line) for line in rows if line]
    except csv.Error as error:
        rule = f"must be a CSV file ({error})"
        raise InputError.one(field, rule, str(path)) from None
    if not header or not lines:
        rule = "must have a header and a line per record"
        raise InputError.one(field, rule, str(path))
    if len(set(header)) != len(header):
        raise InputError.one(field, "must have unique names of columns", header)
    for number, line in lines:
        if len(line) != len(header):
            rule = f"must have the {len(header)} fields of the header in line {number}"
            raise InputError.one(field, rule, len(line))
    columns = zip(*(line for _, line in lines), strict=True)
    return {name: list(values) for name, values in zip(header, columns, strict=True)}


def column(columns: Columns, role: str, name: str) -> Sequence[Any]:
    """The values of a column; ``role`` is the field of an error."""
    if name not in columns:
        rule = f"must be one of the columns {', '.join(columns)}"
        raise InputError.one(role, rule, name)
    return columns[name]


def text_column(columns: Columns, role: str, name: str) -> list[Any]:
    """The values of a column of names; as numbers where all are whole numbers.

    Raises:
        InputError: for a client whose name is no text and no whole number. In a column
            of numbers it would change how all others are written.
    """
    values = _present(columns, role, name)
    if role == "client":
        values = [_whole(name, row, value) for row, value in enumerate(values)]
    texts = [str(value) for value in values]
    if all(map(_is_whole, texts)):
        return [int(text) for text in texts]
    return texts


def _whole(name: str, row: int, client: Any) -> Any:
    """A client's name as it is written, also in a column of floating-point numbers."""
    if not isinstance(client, float | np.floating):
        return client
    if not float(client).is_integer():
        rule = f"must be text or a whole number in {name}"
        raise InputError.one("client", rule, f"{client:g} in record {row}")
    return int(client)


def numbers(columns: Columns, role: str, name: str) -> np.ndarray:
    """The values of a column of numbers [n], float32."""
    values = [
        number_of(role, name, row, value)
        for row, value in enumerate(_present(columns, role, name))
    ]
    return np.array(values, np.float32)


def _present(columns: Columns, role: str, name: str) -> Sequence[Any]:
    """The values of a column, none of which is missing."""
    values = column(columns, role, name)
    for row, value in enumerate(values):
        if is_missing(value):
            rule = f"must not be missing in {name}"
            raise InputError.one(role, rule, f"record {row}")
    return values


def tokens(columns: Columns, names: Sequence[str]) -> np.ndarray | None:
    """Token ids [n, T] of a single column of lists; None for other columns."""
    if len(names) != 1 or names[0] not in columns:
        return None
    name = names[0]
    values = columns[name]
    if not len(values) or not isinstance(values[0], list | tuple | np.ndarray):
        return None
    lengths = {len(value) for value in values}
    if len(lengths) > 1:
        rule = f"must have lists of one length in {name}; pad them"
        raise InputError.one("data", rule, sorted(lengths)[:3])
    ids = np.array([list(value) for value in values])
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        rule = f"must have whole numbers in {name}"
        raise InputError.one("data", rule, str(values[0])[:40])
    return ids.astype(np.int64)


def number_of(field: str, name: str, row: int, value: Any) -> float:
    """A value as a finite number.

    Args:
        field: of the error.
        name: of the column.
        row: of the value.
        value: a number, or its text.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        rule = f"must have numbers in {name}, record {row}"
        if _DECIMAL_COMMA.fullmatch(str(value).strip()):
            rule += (
                ", whose decimals have a point and no comma: with pandas "
                "read_csv(path, sep=';', decimal=',').to_csv(path, index=False)"
            )
        elif field == "data":
            rule += (
                " (--client and --group name their columns, --features A,B those that "
                "are inputs; a column of words has categories in --statistics FILE.json)"
            )
        raise InputError.one(field, rule, str(value))
    return number


_DECIMAL_COMMA = re.compile(r"[-+]?[\d.]*\d,\d+(e[-+]?\d+)?", re.IGNORECASE)


def is_missing(value: Any) -> bool:
    """Whether a table has no value in a cell."""
    if isinstance(value, str):
        return value.strip() in _MISSING
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number as Python writes it, so that no name is lost."""
    if len(text) > _INTEGER_CHARACTERS or not text.isascii():
        return False
    return text.removeprefix("-").isdigit() and str(int(text)) == text
