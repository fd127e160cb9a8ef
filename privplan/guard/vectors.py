"""Updates as vectors: named arrays in one vector and back, and clipping."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.guidance import Guided

# On a clipped update, so that its norm is within the bound in float32, too.
_ROUNDING = 1 - 2.0**-22

Arrays = Mapping[str, np.ndarray]


def clip(update: np.ndarray, bound: float) -> np.ndarray:
    """The update [d], shortened to norm ``bound`` where it is longer.

    The norm is computed in double precision, and a shortened update is a little shorter
    than the bound, so that rounding it to single precision does not exceed the bound.

    Returns:
        A vector [d], float64; zero if the update is not finite.
    """
    vector = np.asarray(update, dtype=np.float64)
    norm = float(np.linalg.norm(vector))
    if not math.isfinite(norm):
        return np.zeros_like(vector)
    if norm <= bound:
        return vector
    return vector * (bound / norm * _ROUNDING)


def keep_largest(vector: np.ndarray, fraction: float) -> np.ndarray:
    """The vector [d] with all but its largest coordinates set to zero.

    Args:
        vector: what was released.
        fraction: of the coordinates that stay; one at least does.
    """
    zeroed = vector.size - max(1, round(fraction * vector.size))
    if zeroed <= 0:
        return vector
    sparse = vector.copy()
    sparse[np.argpartition(np.abs(vector), zeroed - 1)[:zeroed]] = 0.0
    return sparse


@dataclass(frozen=True)
class Layout(Guided):
    """Names, shapes and types of a model's arrays of floating point.

    Only those leave a client.

    Attributes:
        names: of the arrays that are in the vector, in order.
        shapes: their shapes.
        types: their types.
        other_names: of all other arrays, of which the server keeps its own.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[np.dtype[Any], ...]
    other_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, arrays: Arrays) -> Layout:
        """The layout of a model's arrays.

        Raises:
            InputError: when none is of floating point.
        """
        floating = {
            name: array
            for name, array in arrays.items()
            if np.issubdtype(array.dtype, np.floating)
        }
        if not floating:
            rule = "must have arrays of floating point"
            raise InputError.one("model", rule, list(arrays))
        return cls(
            names=tuple(floating),
            shapes=tuple(array.shape for array in floating.values()),
            types=tuple(array.dtype for array in floating.values()),
            other_names=tuple(name for name in arrays if name not in floating),
        )

    @property
    def size(self) -> int:
        """Length of the vector (d)."""
        return sum(math.prod(shape) for shape in self.shapes)

    def vector(self, arrays: Arrays) -> np.ndarray:
        """The arrays as one vector [d], float64.

        Raises:
            InputError: when an array is missing, or has another shape.
        """
        for name, shape in zip(self.names, self.shapes, strict=True):
            actual = arrays[name].shape if name in arrays else "nothing"
            if actual != shape:
                rule = f"must have the shape {shape}"
                raise InputError.one(f"model.{name}", rule, actual)
        flat_arrays = [
            np.asarray(arrays[name], np.float64).ravel() for name in self.names
        ]
        return np.concatenate(flat_arrays)

    def arrays(self, vector: np.ndarray, like: Arrays) -> dict[str, np.ndarray]:
        """A vector [d] as arrays.

        Args:
            vector: the numbers of the arrays of floating point.
            like: arrays in the order of the result, with all that are in no vector.
        """
        shaped = {}
        start = 0
        for name, shape, dtype in zip(self.names, self.shapes, self.types, strict=True):
            end = start + math.prod(shape)
            shaped[name] = vector[start:end].reshape(shape).astype(dtype)
            start = end
        return {name: shaped.get(name, like[name]) for name in like}
