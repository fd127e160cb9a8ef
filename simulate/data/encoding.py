"""Model inputs from columns of a table, by public statistics of each.

A numeric column has ``{"mean": 40, "std": 12, "fill": 38}``; its input is (value -
mean) / std. A missing value is replaced by ``fill``, which is the mean when left out. A
categorical column has ``{"categories": ["f", "m"], "fill": "f"}``; its inputs are 1 for
the value's category and 0 for the others. A missing value is replaced by ``fill``;
without ``fill`` all its inputs are 0. Other values are refused. Statistics ``none``
take numbers as they are.

Statistics are public constants. They are never computed from the table, because
publishing them would be a release of the clients' data that no budget pays for.
"""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import Fault, InputError, did_you_mean
from privplan.files import read_json
from simulate.data.columns import Columns, is_missing, number_of, tokens

_log = logging.getLogger(__name__)

Statistics = Mapping[str, Mapping[str, Any]]
"""Statistics of each feature, by name of its column."""
_NUMERIC = {"mean", "std", "fill"}
_CATEGORICAL = {"categories", "fill"}
_DESCRIBED = {"count", "min", "25%", "50%", "75%", "max", "unique", "top", "freq"}
"""What ``DataFrame.describe`` says besides mean and std; nothing is made of it."""
# How pandas calls a column without a name, with a number behind it.
_UNNAMED = "Unnamed: "
# Of columns with mean 0 and deviation 1 neither is beyond it in any usual sample.
_LARGEST_OF_STANDARDISED = 3.0
_WHOLE = re.compile(r"-?\d+\.0")
# Inputs in float32, standardised by their own statistics as a file may round them,
# have mean 0 and deviation 1 up to this.
_SAME = 1e-5
AS_THEY_ARE: Statistics = defaultdict(partial(dict, mean=0.0, std=1.0))
"""Statistics of a table whose columns are standardised already."""
NO_STATISTICS = Fault(
    "statistics",
    "must be given for a table: FILE.json with public mean and std or categories of "
    "each column (fitted on private data they would be a release), or the word none "
    "where all columns are standardised; --codes names columns of codes",
    "nothing",
)


def read_statistics(path: Path) -> Statistics:
    """The public statistics in a JSON file."""
    content: Any = read_json(path, "statistics")
    if not isinstance(content, dict):
        rule = "must be a mapping from columns to their statistics"
        raise InputError.one("statistics", rule, type(content).__name__)
    return content


@dataclass(frozen=True)
class Encoding:
    """How the features of a table become inputs, so that new records do alike.

    Attributes:
        features: names of columns, in the order of the inputs.
        statistics: of each feature that is no code; None where all are codes.
        codes: features whose numbers are inputs as they are.
    """

    features: Sequence[str]
    statistics: Statistics | None
    codes: Sequence[str]

    def inputs(self, columns: Columns) -> tuple[np.ndarray, list[int]]:
        """Inputs [n, inputs], and the places of codes in them; or token ids [n, T]."""
        ids = tokens(columns, self.features)
        if ids is None:
            return encode(columns, self.features, self.statistics, self.codes)
        if self.codes:
            rule = "must be columns of single numbers"
            raise InputError.one("codes", rule, list(self.codes))
        return ids, []

    def of_features(self) -> Encoding:
        """The same without the statistics of columns that are no features."""
        if self.statistics is None or self.statistics is AS_THEY_ARE:
            return self
        used = {
            name: statistics
            for name, statistics in self.statistics.items()
            if name in self.features
        }
        return replace(self, statistics=used)


def not_standardised(inputs: np.ndarray) -> np.ndarray:
    """Places of inputs [n, inputs] whose mean or deviation is far from 0 and 1."""
    largest = np.maximum(abs(inputs.mean(0)), inputs.std(0))
    return np.flatnonzero(largest > _LARGEST_OF_STANDARDISED)


def encode(
    columns: Columns,
    features: Iterable[str],
    statistics: Statistics | None,
    codes: Sequence[str] = (),
) -> tuple[np.ndarray, list[int]]:
    """Inputs of the features' columns [n, inputs], and the places of codes in them.

    Args:
        columns: of the table.
        features: names of columns, in the order of the inputs.
        statistics: of each feature that is no code.
        codes: features whose numbers are inputs as they are.

    Raises:
        InputError: naming every fault of features and statistics; or a value that is
            none of its column.
    """
    names = list(features)
    stated: Statistics = {} if statistics is None else statistics
    if statistics is None and set(names) - set(codes):
        raise InputError([NO_STATISTICS])
    if not names:
        raise InputError.one("features", "must name a column", names)
    faults = [
        Fault("codes", f"must be among the features {', '.join(names)}", name)
        for name in codes
        if name not in names
    ]
    encoded = [name for name in names if name not in codes]
    faults += _faults(columns, encoded, stated)
    if faults:
        raise InputError(faults)
    inputs: list[np.ndarray] = []
    places: list[int] = []
    for name in names:
        if name in codes:
            places.append(sum(values.shape[1] for values in inputs))
            inputs.append(_codes(name, columns[name]))
        else:
            inputs.append(_encoded(name, columns[name], stated[name]))
    for name in encoded:
        missing = sum(map(is_missing, columns[name]))
        if missing and "fill" not in stated[name]:
            text = (
                "data: %s is missing in %d records, and counts as %s; fill may say more"
            )
            is_numeric = stated[name].get("categories") is None
            _log.warning(
                text, name, missing, "its mean" if is_numeric else "no category"
            )
    if stated is AS_THEY_ARE:
        raw = [
            name
            for name, values in zip(names, inputs, strict=True)
            if name in encoded and not_standardised(values).size
        ]
        text = (
            "data: with statistics none, mean and deviation should be near 0 and 1; "
            "one is above 3 in %s, which --statistics FILE.json standardises"
        )
    else:
        raw = [
            name
            for name, values in zip(names, inputs, strict=True)
            if name in encoded and _is_of_records(values, stated[name])
        ]
        text = (
            "data: mean and std of %s are those of these records: computed from private "
            "records they are a release that no budget pays for"
        )
    if raw:
        _log.warning(text, ", ".join(raw))
    records = np.concatenate(inputs, 1)
    # A module that has embeddings only gets whole numbers.
    if not encoded:
        records = records.astype(np.int64)
    return records, places


def _is_of_records(inputs: np.ndarray, statistics: Mapping[str, Any]) -> bool:
    """Whether a column's mean and deviation were computed from its inputs [n, 1]."""
    if "mean" not in statistics or len(inputs) <= 1:
        return False
    deviations = [inputs.std(dtype=float, ddof=freedom) for freedom in (0, 1)]
    is_centred = abs(inputs.mean(dtype=float)) < _SAME
    nearest_to_one = min(abs(deviation - 1) for deviation in deviations)
    return bool(is_centred and nearest_to_one < _SAME)


def _codes(name: str, values: Sequence[Any]) -> np.ndarray:
    """Codes of one column [n, 1]; those out of range are refused by ``Data``."""
    numbers = [number_of("codes", name, row, value) for row, value in enumerate(values)]
    for row, number in enumerate(numbers):
        if not number.is_integer():
            rule = f"must be whole numbers in {name}, record {row}"
            raise InputError.one("codes", rule, number)
    return np.array(numbers)[:, None]


def _faults(
    columns: Columns, features: Sequence[str], statistics: Statistics
) -> Iterator[Fault]:
    """Statistics of no column, and features without a column or sound statistics."""
    present = ", ".join(columns)
    if statistics is not AS_THEY_ARE:
        for name in statistics:
            if name not in columns:
                rule = f"must be of a column of the table, which has {present}"
                yield Fault(f"statistics.{name}", rule, name)
    for name in features:
        if name not in columns:
            rule = f"must be among the columns {present}{did_you_mean(name, columns)}"
            yield Fault("features", rule, name)
        elif not name or name.startswith(_UNNAMED):
            place = list(columns).index(name) + 1
            rule = (
                f"must have names; column {place} has none, as the index that pandas "
                "writes: drop it by to_csv(path, index=False), or name the inputs by "
                "--features A,B"
            )
            yield Fault("features", rule, name)
        elif statistics is not AS_THEY_ARE and name not in statistics:
            rule = (
                "must have mean and std, or categories, for a feature "
                "(--features names them)"
            )
            yield Fault(f"statistics.{name}", rule, "nothing")
        else:
            yield from _statistics_faults(f"statistics.{name}", statistics[name])


def _statistics_faults(field: str, statistics: Any) -> Iterator[Fault]:
    """Faults of the statistics of one column."""
    keys = set(statistics) if isinstance(statistics, Mapping) else set()
    keys -= _DESCRIBED
    is_numeric = {"mean", "std"} <= keys <= _NUMERIC
    is_categorical = {"categories"} <= keys <= _CATEGORICAL
    if is_categorical:
        yield from _category_faults(field, statistics)
    elif is_numeric:
        faults = [
            Fault(f"{field}.{key}", "must be a finite number", value)
            for key, value in statistics.items()
            if key in keys and not _is_finite_number(value)
        ]
        if not faults and statistics["std"] <= 0:
            faults = [Fault(f"{field}.std", "must be above 0", statistics["std"])]
        yield from faults
    else:
        rule = (
            "must have mean and std, or categories; and fill where values are missing"
        )
        unknown_keys = keys - _NUMERIC - _CATEGORICAL
        if unknown_keys:
            rule += f"; not {', '.join(sorted(map(str, unknown_keys)))}"
        yield Fault(field, rule, statistics)


def _category_faults(field: str, statistics: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults of the statistics of a categorical column."""
    categories = statistics["categories"]
    is_list = isinstance(categories, list)
    if not is_list or len(set(map(str, categories))) != len(categories):
        rule = "must be a list of unique values"
        yield Fault(f"{field}.categories", rule, categories)
    elif "fill" in statistics and str(statistics["fill"]) not in map(str, categories):
        yield Fault(
            f"{field}.fill", "must be one of the categories", statistics["fill"]
        )


def _is_finite_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _encoded(
    name: str, values: Sequence[Any], statistics: Mapping[str, Any]
) -> np.ndarray:
    """Inputs of one column [n, inputs]."""
    categories = statistics.get("categories")
    if categories is None:
        mean = statistics["mean"]
        fill = float(statistics.get("fill", mean))
        numbers = [
            fill if is_missing(value) else number_of("data", name, row, value)
            for row, value in enumerate(values)
        ]
        standardised = (np.array(numbers)[:, None] - mean) / statistics["std"]
        return np.asarray(standardised, np.float32)
    index = {str(value): number for number, value in enumerate(categories)}
    encoded = np.zeros((len(values), len(index)), np.float32)
    for row, value in enumerate(values):
        category = str(statistics.get("fill") if is_missing(value) else value)
        # Where another value of the column is missing, pandas holds 1.0 for 1.
        if category not in index and _WHOLE.fullmatch(category):
            category = category.removesuffix(".0")
        if category in index:
            encoded[row, index[category]] = 1.0
        elif not is_missing(value):
            rule = f"must be one of the {len(index)} categories of {name}, record {row}"
            raise InputError.one("data", rule, value)
    return encoded
