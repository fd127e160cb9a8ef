"""The user's records, labels and names as arrays and tensors of the types that training uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError


def is_dataset(source: Any) -> bool:
    """Whether a source is a map-style dataset rather than an array."""
    sized = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return sized and not isinstance(source, Tensor | np.ndarray)


def pairs_of(source: Any) -> tuple[Any, Any]:
    """Records and labels of a map-style dataset of pairs."""
    if not is_dataset(source):
        raise InputError.one("data.y", "is required with an array of records", "none")
    try:
        items = [source[row] for row in range(len(source))]
        pairs = [(np.asarray(x), y) for x, y in items]
    except (TypeError, ValueError):
        raise InputError.one(
            "data.x", "must hold pairs of a record and a label", "others"
        ) from None
    shapes = {x.shape for x, _ in pairs}
    if len(shapes) != 1:
        raise InputError.one("data.x", "must have records of one shape", sorted(shapes)[:3])
    try:
        return np.stack([x for x, _ in pairs]), np.stack([np.asarray(y) for _, y in pairs])
    except ValueError:
        raise InputError.one("data.y", "must have labels of one shape", "others") from None


def class_labels(where: str, values: Any) -> np.ndarray:
    """One-dimensional labels: whole numbers as int64, or texts."""
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1:
        raise InputError.one(where, "must be one-dimensional", array.shape)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array):
        array = array.astype(str)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == array.round()).all():
        array = array.astype(np.int64)
    if array.dtype.kind in "biu":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iU":
        rule = "must be whole numbers or names of classes, without missing values"
        wrong = next((value for value in array if value != value), array[:1])
        raise InputError.one(where, rule, str(wrong))
    return array


def records_of(values: Any) -> Tensor:
    """Records as uint8, float32 or int64."""
    try:
        array = values if isinstance(values, Tensor) else _tensor_of(np.asarray(values))
    except (TypeError, ValueError):
        raise InputError.one(
            "data.x", "must be numbers in an array", type(values).__name__
        ) from None
    array = array.detach().cpu()
    if array.is_complex() or array.ndim < 2:
        rule = "must be real numbers of shape [records, ...]"
        raise InputError.one("data.x", rule, f"{array.dtype} {tuple(array.shape)}")
    if array.dtype == torch.uint8:
        return array.contiguous()
    whole = not array.is_floating_point() and array.dtype != torch.bool
    return array.to(torch.int64 if whole else torch.float32).contiguous()


def _tensor_of(array: np.ndarray) -> Tensor:
    """The array as a tensor; a copy where it is read-only, which torch warns of."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def names_of(where: str, values: Any) -> np.ndarray:
    """Names of clients or groups as texts [n]; whole numbers by their digits."""
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    missing = [row for row, value in enumerate(array.ravel()) if value is None or value != value]
    if array.ndim != 1 or missing:
        rule = "must have one name or number per record"
        found = f"none in row {missing[0]}" if missing else array.shape
        raise InputError.one(where, rule, found)
    if array.dtype.kind == "f" and (array == array.round()).all():
        array = array.astype(np.int64)
    return array.astype(str)


def said(error: BaseException) -> str:
    """Type and first line of an error in the user's code, for a message of one line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
