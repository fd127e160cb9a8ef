"""Bounds on the epsilon of many equal releases at once."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.certificate import composition, laws
from privplan.accounting.families import dominating_pairs
from privplan.accounting.pld import inversion
from privplan.accounting.pld.accountant import compose
from privplan.accounting.pld.pairs import LARGEST_SHIFT
from privplan.errors import InputError, TooLittleNoiseError, checked_call
from privplan.laws.law import Kind, Pair

# share of the tolerance that is aimed at, work for one question, and how many tolerances off it is
_ATTEMPTS = (0.6, 5e6, math.inf), (0.4, 2e7, 3.0)


@dataclass(frozen=True)
class Bounds:
    """Bounds on epsilon by the accountant pld, in arrays of the shape of the numbers asked for."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    cell: str  # sampling law, relation and accountant

    @property
    def epsilon(self) -> NDArray[np.float64]:
        """The upper bounds, which are guaranteed."""
        return self.upper


@checked_call
def bounds(tolerance: float = 0.01, **given: Any) -> Bounds:
    """Bounds on epsilon of many equal releases; numbers as for ``composition``, or arrays.

    Within the relative ``tolerance`` of each other, where the law is exact, nearly always.
    """
    if not (isinstance(tolerance, int | float) and 1e-4 <= tolerance <= 0.1):
        raise InputError.one("tolerance", "must be in [0.0001, 0.1]", tolerance)
    numbers = ("noise_multiplier", "sampling_ratio", "rounds", "delta")
    arrays = {name: given.pop(name) for name in numbers if given.get(name) is not None}
    if given.get("history") is not None:
        raise InputError.one(
            "history", "must be left out with arrays of numbers", "a history"
        )
    try:
        numeric = [
            np.ma.filled(one, math.nan).astype(float, casting="safe")
            for one in arrays.values()
        ]
        every = np.broadcast_arrays(*numeric)
        every[0].ravel()[0]  # arrays without numbers are refused
    except (ValueError, TypeError, IndexError):
        stated = ", ".join(f"{name} {one!r:.40}" for name, one in arrays.items())
        rule = "must be numbers, one or more, in shapes that fit"
        raise InputError.one("releases", rule, stated) from None
    questions = zip(*(array.ravel().tolist() for array in every), strict=True)
    each = ({**given, **dict(zip(arrays, one, strict=True))} for one in questions)
    # the names of what is given are checked once
    asked = [
        (unwrap(composition) if at else composition)(**one)
        for at, one in enumerate(each)
    ]
    lower, upper = np.zeros(len(asked)), np.full(len(asked), math.inf)
    alike: dict[tuple[Kind, Kind], list[tuple[int, float, float, int, float]]] = {}
    for at, one in enumerate(asked):
        [(release, rounds)] = one.history
        pairs = dominating_pairs(release, one.relation)
        first, second = pairs.upper
        if pairs.upper != pairs.lower or not isinstance(first, Pair):
            continue
        if (
            isinstance(second, Pair)
            and first.ratio < 1
            and first.shift <= LARGEST_SHIFT
        ):
            row = at, first.shift, first.ratio, rounds, one.delta
            alike.setdefault((first.kind, second.kind), []).append(row)
    for kinds, rows in alike.items():
        place, columns = np.array([row[0] for row in rows]), np.array(rows).T[1:]
        for aim, most, off in _ATTEMPTS:
            low, high = lower[place], upper[place]
            far = (low < (1 - tolerance) * high) & (low >= (1 - off * tolerance) * high)
            ways = (
                inversion.questions(kind, *columns[:, far])
                for kind in dict.fromkeys(kinds)
            )
            found = inversion.bounds(tuple(ways), aim * tolerance, most)
            lower[place[far]] = np.maximum(low[far], found[0])
            upper[place[far]] = np.minimum(high[far], found[1])
    for at in np.flatnonzero(
        lower < (1 - tolerance) * upper
    ).tolist():  # which that did not serve
        one = asked[at]
        with suppress(TooLittleNoiseError):
            loss = compose(
                one.history, one.relation, tolerance=0.6 * min(tolerance, 0.02)
            )
            alone = loss.epsilon(one.delta, invert=False)
            lower[at], upper[at] = (
                max(lower[at], alone.lower),
                min(upper[at], alone.upper),
            )
    shape, cell = (
        every[0].shape,
        f"{laws(asked[0].history)} sampling, {asked[0].relation}",
    )
    return Bounds(lower.reshape(shape), upper.reshape(shape), f"{cell}, accountant pld")
