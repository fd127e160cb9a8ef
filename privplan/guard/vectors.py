"""Updates as vectors: named arrays in one vector and back, clipping, and a group's total."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privplan.errors import InputError

Arrays = Mapping[str, np.ndarray]
_ROUNDING = 1 - 2.0**-22
"""Factor on a clipped update, so that its norm stays within the bound in single precision."""


def clip(update: np.ndarray, bound: float) -> np.ndarray:
    """The update [d], shortened to norm ``bound`` where it is longer; zero if it is not finite.

    The norm is computed in double precision, and a shortened update is a little shorter than the
    bound, so that rounding it to single precision does not exceed the bound.
    """
    vector = np.asarray(update, dtype=np.float64)
    norm = float(np.linalg.norm(vector))
    if not math.isfinite(norm):
        return np.zeros_like(vector)
    return vector if norm <= bound else vector * (bound / norm * _ROUNDING)


def keep_largest(vector: np.ndarray, fraction: float) -> np.ndarray:
    """The vector [d] with all but its largest coordinates in absolute value set to zero.

    Args:
        vector: the vector, a release; what is done with it costs nothing.
        fraction: fraction of the coordinates that are kept, in (0, 1]; at least one.
    """
    zeroed = vector.size - max(1, round(fraction * vector.size))
    if zeroed <= 0:
        return vector
    found = vector.copy()
    found[np.argpartition(np.abs(vector), zeroed - 1)[:zeroed]] = 0.0
    return found


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of a model's arrays; only those of floating point leave a client.

    Attributes:
        names: names of the arrays that are in the vector, in order.
        shapes: their shapes.
        types: their types.
        others: names of the arrays that are not of floating point; the server keeps its own.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[np.dtype[Any], ...]
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, arrays: Arrays) -> Layout:
        """The layout of a model's arrays.

        Raises:
            InputError: when none of them is of floating point.
        """
        names = [name for name, one in arrays.items() if np.issubdtype(one.dtype, np.floating)]
        if not names:
            raise InputError.one("model", "must have arrays of floating point", list(arrays))
        return cls(
            tuple(names),
            tuple(arrays[name].shape for name in names),
            tuple(arrays[name].dtype for name in names),
            tuple(name for name in arrays if name not in set(names)),
        )

    @property
    def size(self) -> int:
        """Length of the vector (d)."""
        return sum(math.prod(shape) for shape in self.shapes)

    def vector(self, arrays: Arrays) -> np.ndarray:
        """The arrays as one vector [d], float64.

        Raises:
            InputError: when an array is missing or has another shape.
        """
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name not in arrays or arrays[name].shape != shape:
                found = arrays[name].shape if name in arrays else "nothing"
                raise InputError.one(f"model.{name}", f"must have the shape {shape}", found)
        return np.concatenate([np.asarray(arrays[n], np.float64).ravel() for n in self.names])

    def arrays(self, vector: np.ndarray, like: Arrays) -> dict[str, np.ndarray]:
        """A vector [d] as arrays in the order of ``like``, from which the others are taken."""
        parts, start = {}, 0
        for name, shape, kind in zip(self.names, self.shapes, self.types, strict=True):
            end = start + math.prod(shape)
            parts[name] = vector[start:end].reshape(shape).astype(kind)
            start = end
        return {name: parts.get(name, like[name]) for name in like}


@dataclass
class GroupTotal:
    """The sum of a group's clipped and scaled updates, with what was seen of them.

    Attributes:
        bound: clipping norm of the group's updates.
        scale: factor on clipped updates.
        total: the sum [d], float64; None before the first update.
        reported: number of updates.
        largest_norm: largest norm of a summand.
        clipped: number of updates that were shortened here.
        excluded: number of updates that were not finite and added zero.
    """

    bound: float
    scale: float = 1.0
    total: np.ndarray | None = None
    reported: int = 0
    largest_norm: float = 0.0
    clipped: int = 0
    excluded: int = field(default=0)

    def add(self, update: np.ndarray) -> None:
        """Clip, scale and add one client's update [d], whatever the client did itself.

        Raises:
            InputError: when it has another length than the updates before it.
        """
        raw = np.asarray(update, dtype=np.float64).ravel()
        norm = float(np.linalg.norm(raw))
        vector = clip(raw, self.bound) * self.scale
        if self.total is None:
            self.total = np.zeros_like(vector)
        if vector.shape != self.total.shape:
            raise InputError.one("update", f"must have {len(self.total)} numbers", len(vector))
        self.total += vector
        self.reported += 1
        self.excluded += not math.isfinite(norm)
        self.clipped += math.isfinite(norm) and norm > self.bound
        self.largest_norm = max(self.largest_norm, float(np.linalg.norm(vector)))
