"""A user's records, labels and names, in the types that training uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.errors import Fault, InputError

LARGEST = 1e18
"""Largest size of a number: 340 squares of it add up in float32. Near the end of float32,
sums in one order overflow and those in another do not, and neither is wrong."""
# Records of a data set that are read twice: random changes show in nearly every one.
_READ_TWICE = 16
# Classes that a line names.
_MOST_CLASSES = 20


def size_faults(where: str, values: Tensor) -> Iterator[Fault]:
    """The first row [n, ...] with a number that training cannot take."""
    unusable = (~(values.abs() <= LARGEST)).nonzero()  # as NaN is, too
    if len(unusable):
        rule = (
            f"must be finite and at most {LARGEST:g} in size, so that float32 holds "
            "sums of squares"
        )
        row = int(unusable[0, 0])
        yield Fault(where, rule, f"NaN, infinity or a larger number in row {row}")


def named_classes_hint(labels: Sequence[int]) -> str:
    """What to write for labels that do not begin at 0; empty for those that do."""
    if min(labels) == 0:
        return ""
    names = [*map(str, labels[:_MOST_CLASSES])]
    if len(labels) > _MOST_CLASSES:
        names.append("...")
    named = f"--classes {','.join(names)} (classes=[{', '.join(names)}])"
    return f", though nobody has the class 0: {named} names those that there are"


def is_dataset(source: Any) -> bool:
    """Whether a source is a map-style dataset rather than an array."""
    sized = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return sized and not isinstance(source, Tensor | np.ndarray)


def pairs_of(source: Any) -> tuple[Any, Any]:
    """Records and labels of a map-style dataset of pairs."""
    if hasattr(source, "dataset"):  # a loader of batches
        rule = "must be a dataset or an array; write loader.dataset"
        raise InputError.one("data.x", rule, type(source).__name__)
    if not is_dataset(source):
        raise InputError.one("data.y", "is required with an array of records", "none")
    try:
        items = [source[row] for row in range(len(source))]
        pairs = [(np.asarray(x), y) for x, y in items]
    except (TypeError, ValueError):
        rule = "must hold pairs of a record and a label"
        raise InputError.one("data.x", rule, "others") from None
    for row in range(min(_READ_TWICE, len(items))):
        if not np.array_equal(
            pairs[row][0], np.asarray(source[row][0]), equal_nan=True
        ):
            rule = "must give the same record each time it is read, unchanged at random"
            raise InputError.one("data.x", rule, f"others in row {row}")
    types = {x.dtype for x, _ in pairs}
    if len(types) != 1:
        # NumPy would join them to one type, by one person's record for all others.
        rule = "must have records of one type"
        raise InputError.one("data.x", rule, sorted(map(str, types))[:3])
    shapes = {x.shape for x, _ in pairs}
    if len(shapes) != 1:
        rule = "must have records of one shape"
        raise InputError.one("data.x", rule, sorted(shapes)[:3])
    records = np.stack([x for x, _ in pairs])
    try:
        return records, np.stack([np.asarray(y) for _, y in pairs])
    except ValueError:
        rule = "must have labels of one shape"
        raise InputError.one("data.y", rule, "others") from None


def class_labels(where: str, values: Any) -> np.ndarray:
    """One-dimensional labels: whole numbers as int64, or texts."""
    array = _array(where, values)
    if array.ndim != 1:
        rule = "must be one-dimensional; of one column per class write y.argmax(1)"
        raise InputError.one(where, rule, array.shape)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array):
        array = array.astype(str)
    is_whole = array.dtype.kind in "biu"
    if array.dtype.kind == "f":
        is_whole = np.isfinite(array).all() and (array == array.round()).all()
    if is_whole:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iU":
        rule = "must be whole numbers or names of classes, without missing values"
        missing = next((value for value in array if value != value), array[:1])
        raise InputError.one(where, rule, str(missing))
    return array


def records_of(values: Any) -> Tensor:
    """Records as uint8, float32 or int64."""
    try:
        if not isinstance(values, Tensor):
            array = np.asarray(values)  # torch warns of a read-only array
            values = torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError):
        rule = "must be numbers in an array"
        raise InputError.one("data.x", rule, type(values).__name__) from None
    records: Tensor = values.detach().cpu()
    if records.is_complex() or records.ndim < 2:
        rule = "must be real numbers of shape [records, ...]"
        raise InputError.one("data.x", rule, f"{records.dtype} {tuple(records.shape)}")
    if records.dtype == torch.uint8:
        return records.contiguous()
    is_whole = not records.is_floating_point() and records.dtype != torch.bool
    return records.to(torch.int64 if is_whole else torch.float32).contiguous()


def names_of(where: str, values: Any) -> np.ndarray:
    """Names of clients or groups as texts [n]; whole numbers by their digits."""
    array = _array(where, values)
    rule = "must have one name or number per record"
    for row, value in enumerate(array.ravel()):
        is_blank = isinstance(value, str) and not value.strip()
        if value is None or value != value or is_blank:
            raise InputError.one(where, rule, f"none in row {row}")
    if array.ndim != 1:
        raise InputError.one(where, rule, array.shape)
    if array.dtype.kind == "f":
        # One that is not whole would give all others another name: 1.0 for 1.
        if (array != array.round()).any():
            rule = "must have whole numbers or names"
            raise InputError.one(where, rule, float(array[array != array.round()][0]))
        array = array.astype(np.int64)
    return array.astype(str)


def _array(where: str, values: Any) -> np.ndarray:
    """Values as an array, also of a tensor on any device."""
    try:
        return np.asarray(
            values.detach().cpu() if isinstance(values, Tensor) else values
        )
    except ValueError:
        rule = "must have one value per record"
        raise InputError.one(where, rule, type(values).__name__) from None
