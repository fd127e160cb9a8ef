"""Initial parameters from a file instead of random ones, for every method and model."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.io.files import write_bytes
from privplan.spec.initial import FIELD, Initial
from simulate.models.network import Model

COPY = "initial.npy"
"""The file in the folder of a run, so that the run can be replayed elsewhere."""


class _Started:
    """A model whose initial parameters are given; all else is the model's."""

    def __init__(self, model: Model, values: Tensor, *, head: bool) -> None:
        self._model, self._values, self._head = model, values, head

    def initial(self, generator: torch.Generator) -> Tensor:
        """The parameters [d], the head drawn unless it is given, too."""
        values = self._values.to(generator.device)
        if self._head:
            return values.clone()
        drawn = self._model.initial(generator)
        head = self._model.head
        return torch.cat([values[: head.start], drawn[head], values[head.stop :]])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def started(model: Model, initial: Initial | None, folder: Path | None = None) -> Model:
    """A model that starts from parameters of a file.

    Args:
        model: the model.
        initial: the file, its digest, and whether the head is taken from it; None for the model as
            it is.
        folder: of a run, whose copy is read where the file is not at its place.

    Raises:
        InputError: the file cannot be read, is another one, or does not fit the model; or the
            head is to be drawn and the model has none.
    """
    if initial is None:
        return model
    values = _read(initial, None if folder is None else folder / COPY)
    if values.shape != (model.parameters,):
        rule = f"must have one array of the {model.parameters} parameters of {model.name}"
        raise InputError.one(f"{FIELD}.file", rule, _shape(values))
    if initial.head == "drawn":
        model.head  # noqa: B018  # raises where the model has no dense layer
    with np.errstate(over="ignore"):
        loaded = torch.from_numpy(values.astype(np.float32))
    if not bool(torch.isfinite(loaded).all()):
        raise InputError.one(
            f"{FIELD}.file", "must have numbers that are finite in float32", initial.file
        )
    return cast(Model, _Started(model, loaded, head=initial.head == "loaded"))


def save(path: Path, values: Tensor) -> str:
    """Write parameters [d] to start from; returns the SHA-256 of the file."""
    buffer = io.BytesIO()
    np.save(buffer, values.cpu().numpy().astype(np.float32))
    write_bytes(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def keep(initial: Initial | None, folder: Path) -> None:
    """Copy the file to the folder of a run, unless it is there.

    Raises:
        InputError: it cannot be read, or is another one.
    """
    if initial is not None and not (folder / COPY).exists():
        write_bytes(folder / COPY, initial.content())


def _read(initial: Initial, copy: Path | None) -> np.ndarray:
    """The array of a file.

    Raises:
        InputError: as ``started`` says.
    """
    try:
        values = np.load(io.BytesIO(initial.content(copy)), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        values = None
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        rule = "must be a .npy file with floating-point numbers"
        raise InputError.one(f"{FIELD}.file", rule, initial.file)
    return values


def _shape(values: np.ndarray) -> str:
    return "x".join(map(str, values.shape)) or "a single number"
