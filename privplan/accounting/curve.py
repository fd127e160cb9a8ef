"""The privacy of a history as a value: epsilon at any delta, delta at any epsilon, step by step."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, cast

from pydantic import Field

from privplan.accounting.accountant import Interval, checked_delta, checked_relation
from privplan.accounting.certificate import CertificateRow, certify, laws
from privplan.accounting.families import dominating_pairs
from privplan.accounting.pld import PldAccountant
from privplan.accounting.pld.accountant import compose as composed_loss
from privplan.accounting.release import GAUSSIAN, History, Relation, Release, SamplingLaw
from privplan.errors import InputError
from privplan.values import MOST, Count, Value, parse

# --- What ``privplan.compose`` takes: releases, numbers and saved states, checked. ---------------

LEAST_TOLERANCE = 1e-6

Releases = History | Release | Iterable[Release | tuple[Release, int]]


class Segment(Value):
    """A release in ``State``, with how often it happened."""

    noise_multiplier: float | Literal["inf"]
    sampling_ratio: float
    sampling: str
    family: str = GAUSSIAN
    rounds: Count


class State(Value):
    """The JSON document of ``state_dict``."""

    format: Literal["privplan.compose/1"]
    accountant: Literal["pld"]
    relation: str
    tolerance: float = Field(ge=LEAST_TOLERANCE, le=0.5)
    history: tuple[Segment, ...]


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
        pair = (item, 1) if isinstance(item, Release) else item
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], Release):
            raise InputError.one("history", rule, item)
        counted.append((pair[0], checked_rounds(pair[1])))
    return counted


def checked_rounds(rounds: Any) -> int:
    """A whole number of rounds, 0 or more."""
    rule = f"must be a whole number from 0 to {MOST:g}"
    try:
        whole = not isinstance(rounds, bool) and int(rounds) == rounds
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or not 0 <= rounds <= MOST:
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
        raise InputError.one("tolerance", f"must be in [{LEAST_TOLERANCE:g}, 0.5]", tolerance)
    return value


# -------------------------------------------------------------------------------------------------
# The privacy of a history as a value: epsilon at any delta, delta at any epsilon, step by step.

TOLERANCE = 1e-3


class PrivacyCurve:
    """Two-sided bounds on the privacy of a growing history; made by ``privplan.compose``.

    Every answer is a proven lower and upper bound, whatever the tolerance: a coarser tolerance
    means a wider interval. An answer composes the history as it is at that moment; those to the
    last questions are kept, by history.
    """

    def __init__(
        self, relation: Relation | str = Relation.ADD_REMOVE, *, tolerance: float = TOLERANCE
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
        """Gap of the bounds over the upper bound to aim at, where a call names no other."""
        return self._tolerance

    @property
    def history(self) -> History:
        """What was released so far."""
        return History(self._counts.items())

    @property
    def rounds(self) -> int:
        """Number of releases so far."""
        return self._counts.total()

    def __len__(self) -> int:
        """Number of releases so far."""
        return self.rounds

    def step(
        self,
        release: Releases | None = None,
        rounds: int = 1,
        *,
        noise_multiplier: float | None = None,
        sample_rate: float | None = None,
    ) -> PrivacyCurve:
        """Add releases. Constant time per release; nothing is composed before a question.

        Args:
            release: a release, or several.
            rounds: how often they happen, 0 or more.
            noise_multiplier: instead of a release, that of a Poisson-sampled Gaussian, as Opacus
                writes it: noise standard deviation over the clipping norm.
            sample_rate: its sampling ratio; 1 (everybody) by default.

        Returns:
            The curve itself, so that steps can be chained.

        Raises:
            InputError: for a value out of range, or both or neither of a release and a noise
                multiplier.
            UnsupportedError: when a family of noise does not cover the release.
        """
        if (release is None) == (noise_multiplier is None):
            found = "both" if release is not None else "neither"
            raise InputError.one("step", "must have a release or a noise_multiplier", found)
        if release is not None and sample_rate is not None:
            raise InputError.one("sample_rate", "must come with noise_multiplier", sample_rate)
        if noise_multiplier is not None:
            rate = checked_number("sample_rate", 1.0 if sample_rate is None else sample_rate)
            noise = checked_number("noise_multiplier", noise_multiplier)
            release = Release(noise, rate, SamplingLaw.POISSON)
        times = checked_rounds(rounds)
        added = counted(release)
        for one, _ in added:
            reaches = one.sampling_ratio > 0 and 0 < one.noise_multiplier < math.inf
            if reaches and one not in self._counts:
                dominating_pairs(one, self._relation)  # raises where a family does not cover it
        for one, count in added:
            if count * times:
                self._counts[one] += count * times
        return self

    def epsilon(self, delta: float, *, tolerance: float | None = None) -> Interval:
        """Bounds on the smallest epsilon at ``delta``.

        Args:
            delta: failure probability, in (0, 1).
            tolerance: gap over the upper bound to aim at; that of the curve by default.

        Raises:
            InputError: for a value out of range.
            TooLittleNoiseError: when a noise multiplier is too small to compose with sampling.
        """
        delta = checked_delta(checked_number("delta", delta))
        by = PldAccountant(tolerance=self._aimed_at(tolerance))
        return by.epsilon(self.history, delta, self._relation)

    def delta(self, epsilon: float, *, tolerance: float | None = None) -> Interval:
        """Bounds on the smallest delta at ``epsilon``.

        Args:
            epsilon: 0 or more.
            tolerance: gap over the upper bound to aim at; that of the curve by default.

        Raises:
            InputError: for a value out of range.
            TooLittleNoiseError: when a noise multiplier is too small to compose with sampling.
        """
        epsilon = checked_number("epsilon", epsilon)
        if not 0 <= epsilon < math.inf:
            raise InputError.one("epsilon", "must be 0 or more, and finite", epsilon)
        return _delta(self.history, self._relation, epsilon, self._aimed_at(tolerance))

    def _aimed_at(self, tolerance: float | None) -> float:
        return self._tolerance if tolerance is None else checked_tolerance(tolerance)

    def certificate(self, delta: float, *, group: str = "all") -> CertificateRow:
        """The bounds at ``delta`` with all that they depend on: law, relation, accountant.

        Args:
            delta: failure probability, in (0, 1).
            group: name to put on the row.
        """
        by = PldAccountant(tolerance=self._tolerance)
        [row] = certify(
            self.history, group=group, delta=delta, relation=self._relation, accountants=[by]
        )
        return row

    def summary(self, delta: float, *, tolerance: float | None = None) -> str:
        """The bounds at ``delta`` and their gap, in one line with all that they depend on."""
        found = self.epsilon(delta, tolerance=tolerance)
        gap = (found.upper - found.lower) / found.upper if 0 < found.upper < math.inf else 0.0
        low, high = _shown(found.lower, down=True), _shown(found.upper, down=False)
        return f"epsilon in [{low}, {high}] at delta {delta:g}, gap {gap:.1e} ({self._cell()})"

    def __repr__(self) -> str:
        """What is composed."""
        return f"PrivacyCurve({self._cell()}, tolerance {self._tolerance:g})"

    def _cell(self) -> str:
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        law = laws(self.history)
        return f"{rounds}, {law} sampling, {self._relation}, {PldAccountant.name} accountant"

    def state_dict(self) -> dict[str, Any]:
        """The history and the settings, as plain data for JSON.

        What was composed is not in it: it is composed again at the next question.
        """
        return {
            "format": "privplan.compose/1",
            "accountant": PldAccountant.name,
            "relation": str(self._relation),
            "tolerance": self._tolerance,
            "history": [
                {
                    "noise_multiplier": "inf"
                    if math.isinf(one.noise_multiplier)
                    else one.noise_multiplier,
                    "sampling_ratio": one.sampling_ratio,
                    "sampling": str(one.sampling),
                    "family": one.family,
                    "rounds": count,
                }
                for one, count in self.history
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace everything by what ``state_dict`` returned; unchanged when it has a fault.

        Raises:
            InputError: when it is not such a state.
        """
        if not isinstance(state, Mapping):
            raise InputError.one("state_dict", "must be a mapping of fields", state)
        try:
            plain = json.loads(json.dumps(dict(state)))
        except (TypeError, ValueError):
            raise InputError.one("state_dict", "must be plain data for JSON", state) from None
        read = parse(State, plain)
        loaded = PrivacyCurve(read.relation, tolerance=read.tolerance)
        for one in read.history:
            noise = math.inf if one.noise_multiplier == "inf" else one.noise_multiplier
            made = Release(noise, one.sampling_ratio, cast(SamplingLaw, one.sampling), one.family)
            loaded.step(made, one.rounds)
        self.__dict__.update(loaded.__dict__)


def compose(
    history: Releases = (),
    relation: Relation | str = Relation.ADD_REMOVE,
    *,
    tolerance: float = TOLERANCE,
) -> PrivacyCurve:
    """The composed privacy of a history, to be read at any delta and to be continued.

    Args:
        history: a history, a release, or releases with or without how often each happened;
            nothing by default.
        relation: which data sets are neighbours.
        tolerance: gap of the bounds over the upper bound to aim at. The bounds hold whatever it
            is; certificates and plans use 1e-4.

    Raises:
        InputError: for a value out of range.
        UnsupportedError: when a family of noise does not cover a release.
    """
    return PrivacyCurve(relation, tolerance=tolerance).step(history)


@lru_cache(maxsize=256)
def _delta(history: History, relation: Relation, epsilon: float, tolerance: float) -> Interval:
    return composed_loss(history, relation).delta(epsilon, tolerance)


def _shown(value: float, *, down: bool) -> str:
    """Six digits, rounded outward."""
    text = f"{value:.6g}"
    if value == 0 or math.isinf(value) or (float(text) <= value if down else float(text) >= value):
        return text
    unit = 10.0 ** (math.floor(math.log10(value)) - 5)
    return f"{value - unit / 2 if down else value + unit / 2:.6g}"
