"""Initial parameters from a file instead of random ones, for every method and model."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.files import write_bytes
from privplan.spec.training import FIELD, Initial
from simulate.models.network import Model

COPY = "initial.npy"  # in the folder of a run, which can then be replayed elsewhere


class _Started:
    """A model whose initial parameters are given; all else is the model's."""

    def __init__(self, model: Model, values: Tensor, *, head: bool) -> None:
        self._model = model
        self._values = values
        self._has_head = head

    def initial(self, generator: torch.Generator) -> Tensor:
        """The parameters [d], the head drawn unless it is given, too."""
        values = self._values.to(generator.device)
        if self._has_head:
            return values.clone()
        head = self._model.head
        drawn = self._model.initial(generator)[head]
        return torch.cat([values[: head.start], drawn, values[head.stop :]])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def started(model: Model, initial: Initial | None, folder: Path | None = None) -> Model:
    """A model that starts from parameters of a file.

    Args:
        model: all else is the model's.
        initial: names the file, and says whether the head is loaded or drawn.
        folder: of a run, which may have a copy of the file.

    Raises:
        InputError: for a file that does not hold the model's parameters.
    """
    if initial is None:
        return model
    values = _read(initial, None if folder is None else folder / COPY)
    if values.shape != (model.parameters,):
        rule = (
            f"must have one array of the {model.parameters} parameters of {model.name}"
        )
        shape = "x".join(map(str, values.shape)) or "a single number"
        raise InputError.one(f"{FIELD}.file", rule, shape)
    if initial.head == "drawn":
        model.head  # noqa: B018  # raises where the model has no dense layer
    with np.errstate(over="ignore"):
        loaded = torch.from_numpy(values.astype(np.float32))
    if not bool(torch.isfinite(loaded).all()):
        rule = "must have numbers that are finite in float32"
        raise InputError.one(f"{FIELD}.file", rule, initial.file)
    return cast(Model, _Started(model, loaded, head=initial.head == "loaded"))


def keep(initial: Initial | None, folder: Path) -> None:
    """Copy the file to the folder of a run, unless it is there."""
    if initial is not None and not (folder / COPY).exists():
        write_bytes(folder / COPY, initial.content())


def _read(initial: Initial, copy: Path | None) -> np.ndarray:
    """The array of a file."""
    content = initial.content(copy)
    values = None
    with suppress(Exception):  # NumPy's reader of a damaged file can fail in any way
        values = np.load(io.BytesIO(content), allow_pickle=False)
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        rule = "must be a .npy file with floating-point numbers"
        raise InputError.one(f"{FIELD}.file", rule, initial.file)
    return values
