"""The privacy of a growing history as a value: epsilon at any delta, and the reverse.

First the checks of what ``privplan.compose`` takes: releases, numbers, tolerances.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from privplan.accounting.accountant import Interval, checked_delta, checked_relation
from privplan.accounting.calibrate import MOST_ROUNDS
from privplan.accounting.certificate import laws
from privplan.accounting.families import dominating_pairs
from privplan.accounting.pld import PldAccountant
from privplan.accounting.pld.accountant import DELTA_TOLERANCE, TOLERANCE
from privplan.accounting.pld.accountant import compose as composed_loss
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InputError
from privplan.guidance import Guided, checked_call, checked_init
from privplan.values import LARGEST_COUNT

# The smallest tolerance of epsilon that can be met.
LEAST_TOLERANCE = 1e-6

Releases = History | Release | Iterable[Release | History | tuple[Release, int]]


def counted(release: Releases | None) -> list[tuple[Release, int]]:
    """Releases with their counts."""
    if isinstance(release, Release):
        return [(release, 1)]
    if isinstance(release, History):
        return list(release)
    rule = "must be a history, a release, or releases with or without counts"
    if release is None or isinstance(release, str | bytes | Mapping):
        raise InputError.one("history", rule, release)
    try:
        items = list(release)
    except TypeError:
        raise InputError.one("history", rule, release) from None
    counted = []
    for item in items:
        if isinstance(item, History):
            counted += list(item)
            continue
        pair = (item, 1) if isinstance(item, Release) else item
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], Release):
            raise InputError.one("history", rule, item)
        counted.append((pair[0], checked_rounds(pair[1])))
    return counted


def checked_rounds(rounds: Any) -> int:
    """A whole number of rounds, 0 or more."""
    rule = f"must be a whole number from 0 to {LARGEST_COUNT:g}"
    try:
        is_whole = not isinstance(rounds, bool) and int(rounds) == rounds
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    if not is_whole or not 0 <= rounds <= LARGEST_COUNT:
        raise InputError.one("rounds", rule, rounds)
    return int(rounds)


def checked_number(field: str, value: Any) -> float:
    """A number, not text."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InputError.one(field, "must be a number", value) from None


def checked_tolerance(tolerance: Any) -> float:
    """A relative tolerance that can be met."""
    value = checked_number("tolerance", tolerance)
    if not LEAST_TOLERANCE <= value <= 0.5:
        raise InputError.one(
            "tolerance", f"must be in [{LEAST_TOLERANCE:g}, 0.5]", tolerance
        )
    return value


@checked_init
class PrivacyCurve(Guided):
    """Two-sided bounds on the privacy of a growing history, by ``privplan.compose``.

    Every answer is a proven lower and upper bound, whatever the tolerance: a coarser
    tolerance means a wider interval; a question may name its own. An answer composes
    the history as it is at that moment; the last epsilons are stored, by history.
    """

    def __init__(
        self,
        relation: Relation | str = Relation.ADD_REMOVE,
        *,
        tolerance: float = TOLERANCE,
    ) -> None:
        self._relation = checked_relation(relation)
        self._tolerance = checked_tolerance(tolerance)
        self._counts: Counter[Release] = Counter()

    @property
    def relation(self) -> Relation:
        """Which data sets are neighbours."""
        return self._relation

    @property
    def tolerance(self) -> float:
        """Gap of the bounds over the upper one to aim at, where a call names none."""
        return self._tolerance

    @property
    def history(self) -> History:
        """What was released so far."""
        return History(self._counts.items())

    @property
    def rounds(self) -> int:
        """Number of releases so far."""
        return self._counts.total()

    @checked_call
    def step(self, release: Releases, rounds: int = 1) -> PrivacyCurve:
        """Add releases, or one, ``rounds`` times.

        Constant time per release; nothing is composed before a question.

        Returns:
            The curve itself, so that steps can be chained.

        Raises:
            InputError: for a value out of range.
            UnsupportedError: when a family of noise does not cover the release.
        """
        times = checked_rounds(rounds)
        added = counted(release)
        total = self.rounds + times * sum(count for _, count in added)
        if total > MOST_ROUNDS:
            raise InputError.one(
                "rounds", f"must be at most {MOST_ROUNDS} in all", total
            )

        # Ask for the pairs of releases that are new: a family that does not cover one
        # raises here, before anything is counted.
        for new_release, _ in added:
            is_noisy = 0 < new_release.noise_multiplier < math.inf
            reaches = new_release.sampling_ratio > 0 and is_noisy
            if reaches and new_release not in self._counts:
                dominating_pairs(new_release, self._relation)

        for new_release, count in added:
            if count * times:
                self._counts[new_release] += count * times
        return self

    def epsilon(self, delta: float, *, tolerance: float | None = None) -> Interval:
        """Bounds on the smallest epsilon at ``delta`` in (0, 1).

        Raises:
            InputError: for a value out of range.
            TooLittleNoiseError: when a noise multiplier is too small to compose with
                sampling.
        """
        delta = checked_delta(checked_number("delta", delta))
        if tolerance is None:
            aim = self._tolerance
        else:
            aim = checked_tolerance(tolerance)
        return PldAccountant(tolerance=aim).epsilon(self.history, delta, self._relation)

    def delta(self, epsilon: float, *, tolerance: float | None = None) -> Interval:
        """Bounds on the smallest delta at ``epsilon``, 0 or more.

        Raises:
            InputError: for a value out of range.
            TooLittleNoiseError: when a noise multiplier is too small to compose with
                sampling.
        """
        epsilon = checked_number("epsilon", epsilon)
        if not 0 <= epsilon < math.inf:
            raise InputError.one("epsilon", "must be 0 or more, and finite", epsilon)
        aim = max(self._tolerance, DELTA_TOLERANCE)
        aim = aim if tolerance is None else checked_tolerance(tolerance)
        return composed_loss(self.history, self._relation).delta(epsilon, aim)

    def __repr__(self) -> str:
        """What is composed."""
        law = laws(self.history)
        return (
            f"PrivacyCurve({self.rounds} rounds, {law} sampling, "
            f"{self._relation}, by {PldAccountant.name})"
        )


@checked_call
def compose(
    history: Releases = (),
    relation: Relation | str = Relation.ADD_REMOVE,
    *,
    tolerance: float = TOLERANCE,
) -> PrivacyCurve:
    """The composed privacy of a history, to be read at any delta and to be continued.

    Args:
        history: a history, a release, or releases with or without how often each
            happened; nothing by default.
        relation: which data sets are neighbours.
        tolerance: gap of the bounds over the upper bound to aim at; when left out that
            of certificates and plans, 1e-4, and 1e-3 of a delta. The bounds hold
            whatever it is.

    >>> found = privplan.compose(plan.history("strict")).epsilon(1e-5)
    >>> 3 < found.lower <= found.upper < 5
    True
    """
    return PrivacyCurve(relation, tolerance=tolerance).step(history)
