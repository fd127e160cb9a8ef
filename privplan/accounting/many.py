"""Bounds on the epsilon of many equal releases at once: each distinct question once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import Interval
from privplan.accounting.certificate import laws
from privplan.accounting.composition import Composition, composition
from privplan.accounting.pld.accountant import PldAccountant
from privplan.errors import InputError, TooLittleNoiseError
from privplan.guidance import Guided, checked_call
from privplan.processes import in_jobs
from privplan.sweeps import Progress, finish

# The numbers of a question, each of which may be an array.
_NUMBERS = ("noise_multiplier", "sampling_ratio", "rounds", "delta")
# A closer question is asked of a curve; bounds further apart would say little.
_TOLERANCES = (1e-4, 0.1)


@dataclass(frozen=True)
class Bounds(Guided):
    """Bounds on epsilon by the accountant pld.

    Attributes:
        lower: epsilon is at least this, in the shape of the numbers asked for.
        upper: epsilon is at most this; infinite where pld covers no such noise.
        cell: sampling law, relation and accountant.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    cell: str

    @property
    def epsilon(self) -> NDArray[np.float64]:
        """The upper bounds, which are guaranteed."""
        return self.upper


class _Questions(NamedTuple):
    """Questions in the order of the arrays' elements, and the shape of these."""

    compositions: list[Composition]
    shape: tuple[int, ...]


@checked_call
def bounds(
    tolerance: float = 0.01,
    workers: int = 1,
    progress: Progress = lambda done, total: None,
    **releases: Any,
) -> Bounds:
    """Bounds on epsilon of many equal releases.

    Args:
        tolerance: gap of the bounds over the upper one, to aim at, in [1e-4, 0.1].
        workers: processes over which distinct questions are spread.
        progress: called with the number of questions answered, and of all.
        releases: numbers as for ``composition``, or arrays of them whose shapes fit.

    Raises:
        InputError: where a number is out of range, or shapes do not fit.
    """
    low, high = _TOLERANCES
    if not (isinstance(tolerance, int | float) and low <= tolerance <= high):
        rule = "must be in [0.0001, 0.1]"
        raise InputError.one("tolerance", rule, tolerance)
    if not (isinstance(workers, int) and workers >= 1):
        raise InputError.one("workers", "must be a whole number from 1", workers)
    questions = _questions(releases)

    # Each distinct question is asked once.
    distinct = dict.fromkeys(questions.compositions)
    items = {str(index): question for index, question in enumerate(distinct)}
    answers = finish(
        items,
        partial(_answer, tolerance=float(tolerance)),
        spread=in_jobs(min(workers, len(items))),
        progress=progress,
    )
    intervals = {question: answers[key] for key, question in items.items()}

    lower = [intervals[question].lower for question in questions.compositions]
    upper = [intervals[question].upper for question in questions.compositions]
    first_question = questions.compositions[0]
    return Bounds(
        np.array(lower).reshape(questions.shape),
        np.array(upper).reshape(questions.shape),
        f"{laws(first_question.history)} sampling, {first_question.relation}, "
        "accountant pld",
    )


def _answer(question: Composition, tolerance: float) -> Interval:
    """Bounds of one question; no upper one where there is too little noise."""
    accountant = PldAccountant(tolerance=tolerance)
    try:
        return accountant.epsilon(question.history, question.delta, question.relation)
    except TooLittleNoiseError:
        return Interval(0.0, math.inf)


def _questions(releases: dict[str, Any]) -> _Questions:
    """The questions of arrays, all checked before the first is answered."""
    if releases.get("history") is not None:
        rule = "must be left out with arrays of numbers"
        raise InputError.one("history", rule, "a history")
    names = [name for name in _NUMBERS if releases.get(name) is not None]
    arrays = {name: releases[name] for name in names}
    fixed = {name: value for name, value in releases.items() if name not in arrays}
    try:
        columns = [
            np.ma.filled(values, math.nan).astype(float, casting="safe")
            for values in arrays.values()
        ]
        broadcast = np.broadcast_arrays(*columns)
        is_empty = broadcast[0].size == 0
    except (ValueError, TypeError, IndexError):
        is_empty = True
    if is_empty:
        stated = ", ".join(f"{name} {value!r:.40}" for name, value in arrays.items())
        rule = "must be numbers, one or more, in shapes that fit"
        raise InputError.one("releases", rule, stated)

    compositions = []
    for numbers in zip(*(column.ravel().tolist() for column in broadcast), strict=True):
        question = dict(zip(names, numbers, strict=True))
        compositions.append(composition(**fixed, **question))
    return _Questions(compositions, broadcast[0].shape)
