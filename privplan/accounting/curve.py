"""The privacy of a history as a value: epsilon at any delta, delta at any epsilon, step by step."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from privplan.accounting.accountant import Interval, checked_delta
from privplan.accounting.certificate import CertificateRow, laws
from privplan.accounting.families import dominating_pairs
from privplan.accounting.pld import PldAccountant, profile
from privplan.accounting.pld.answer import bounds
from privplan.accounting.pld.growing import AtDelta, AtEpsilon, Direction, GrowingSide
from privplan.accounting.pld.pairs import LARGEST_SHIFT
from privplan.accounting.pld.running import Total
from privplan.accounting.release import GAUSSIAN, History, Relation, Release, SamplingLaw
from privplan.errors import InputError, TooLittleNoiseError
from privplan.laws.law import DominatingPairs, Kind, Pair
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
        one, count = (item, 1) if isinstance(item, Release) else _pair(item, rule)
        counted.append((one, checked_rounds(count)))
    return counted


def _pair(item: object, rule: str) -> tuple[Release, int]:
    if isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], Release):
        return item[0], item[1]
    raise InputError.one("history", rule, item)


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


def checked_relation(relation: Any) -> Relation:
    """A neighbouring relation from its name."""
    try:
        return Relation(relation)
    except ValueError:
        rule = f"must be one of {', '.join(Relation)}"
        raise InputError.one("relation", rule, relation) from None


def checked_law(name: str) -> SamplingLaw:
    """A sampling law from its name."""
    try:
        return SamplingLaw(name)
    except ValueError:
        raise InputError.one("sampling", f"must be one of {', '.join(SamplingLaw)}", name) from None


def checked_tolerance(tolerance: Any) -> float:
    """A relative tolerance that can be met."""
    value = checked_number("tolerance", tolerance)
    if not LEAST_TOLERANCE <= value <= 0.5:
        raise InputError.one("tolerance", f"must be in [{LEAST_TOLERANCE:g}, 0.5]", tolerance)
    return value


# -------------------------------------------------------------------------------------------------
# The privacy of a history as a value: epsilon at any delta, delta at any epsilon, step by step.

TOLERANCE = 1e-3
_MOST_ANSWERS = 1000


class PrivacyCurve:
    """Two-sided bounds on the privacy of a growing history; made by ``privplan.compose``.

    Every answer is a proven lower and upper bound, whatever the tolerance: a coarser tolerance
    means a wider interval.
    """

    def __init__(
        self, relation: Relation | str = Relation.ADD_REMOVE, *, tolerance: float = TOLERANCE
    ) -> None:
        self._relation = checked_relation(relation)
        self._tolerance = checked_tolerance(tolerance)
        self._reset()

    def _reset(self) -> None:
        self._counts: Counter[Release] = Counter()
        self._pairs: dict[Release, DominatingPairs] = {}
        self._ways = [
            Direction(GrowingSide(from_above=True), GrowingSide(from_above=False)) for _ in range(2)
        ]
        self._squares = Total()
        self._largest_shift = 0.0
        self._unbounded = False
        self._sampled = False
        self._answers: dict[tuple[str, float, float], Interval] = {}

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
            if _silent(one) or one.noise_multiplier == 0 or one in self._pairs:
                continue
            self._pairs[one] = dominating_pairs(one, self._relation)
        for one, count in added:
            if count * times:
                self._add(one, count * times)
        return self

    def _add(self, release: Release, count: int) -> None:
        self._answers.clear()
        self._counts[release] += count
        if _silent(release):
            return
        if release.noise_multiplier == 0:
            self._unbounded = True
            return
        pairs = self._pairs[release]
        for pair in (*pairs.upper, *pairs.lower):
            if not isinstance(pair, Pair):
                self._sampled = True
                continue
            self._largest_shift = max(self._largest_shift, pair.shift)
            self._sampled |= pair.kind != Kind.REMOVE or pair.ratio != 1
        first = pairs.upper[0]
        if isinstance(first, Pair):
            self._squares.add(count * first.shift**2)
        for way, direction in enumerate(self._ways):
            direction.above.add(pairs.upper[way], count)
            direction.below.add(pairs.lower[way], count)

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
        return self._answer("epsilon", delta, tolerance)

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
        return self._answer("delta", epsilon, tolerance)

    def _answer(self, wanted: str, given: float, tolerance: float | None) -> Interval:
        tolerance = self._tolerance if tolerance is None else checked_tolerance(tolerance)
        known = self._answers.get((wanted, given, tolerance))
        if known is None:
            compute = self._epsilon if wanted == "epsilon" else self._delta
            known = compute(given, tolerance)
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[wanted, given, tolerance] = known
        return known

    def _epsilon(self, delta: float, tolerance: float) -> Interval:
        if self._unbounded:
            return Interval(math.inf, math.inf)
        if not self._sampled:
            return Interval(*profile.gaussian_epsilon(math.sqrt(self._squares.value), delta))
        return bounds(self._directions(), AtDelta(delta, tolerance), tolerance, floor=True)

    def _delta(self, epsilon: float, tolerance: float) -> Interval:
        if self._unbounded:
            return Interval(1.0, 1.0)
        if not self._sampled:
            return Interval(*profile.gaussian_delta(math.sqrt(self._squares.value), epsilon))
        return bounds(self._directions(), AtEpsilon(epsilon, tolerance), tolerance, floor=False)

    def _directions(self) -> list[Direction]:
        """Both directions, or one where they are the same."""
        if self._largest_shift > LARGEST_SHIFT:
            raise TooLittleNoiseError(
                f"noise_multiplier: pld needs {1 / LARGEST_SHIFT:g} times the distance or more "
                f"under sampling, found {1 / self._largest_shift:g}"
            )
        first, second = self._ways
        same = first.above.pairs == second.above.pairs and first.below.pairs == second.below.pairs
        return [first] if same else [first, second]

    def certificate(self, delta: float, *, group: str = "all") -> CertificateRow:
        """The bounds at ``delta`` with all that they depend on: law, relation, accountant.

        Args:
            delta: failure probability, in (0, 1).
            group: name to put on the row.
        """
        found, by = self.epsilon(delta), PldAccountant()
        return CertificateRow(
            group=group,
            accountant=by.name,
            epsilon_lower=found.lower,
            epsilon_upper=found.upper,
            delta=delta,
            sampling=laws(self.history),
            relation=self._relation,
            version=by.version,
            guarantee=by.guarantee,
            kind=by.kind,
        )

    def summary(self, delta: float, *, tolerance: float | None = None) -> str:
        """The bounds at ``delta`` and their gap, in one line with all that they depend on."""
        found = self.epsilon(delta, tolerance=tolerance)
        return f"{_answered('epsilon', delta, found)} ({self._cell()})"

    def __repr__(self) -> str:
        """What is composed, and the last answers."""
        known = [
            _answered(wanted, given, found) for (wanted, given, _), found in self._answers.items()
        ]
        lines = "".join(f"; {line}" for line in known[-3:])
        return f"PrivacyCurve({self._cell()}, tolerance {self._tolerance:g}{lines})"

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
            law = checked_law(one.sampling)
            loaded.step(Release(noise, one.sampling_ratio, law, one.family), one.rounds)
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


def _silent(release: Release) -> bool:
    """Whether nothing of a client is in the release."""
    return release.sampling_ratio == 0 or math.isinf(release.noise_multiplier)


def _answered(wanted: str, given: float, found: Interval) -> str:
    """An answer in words, with its gap."""
    other = "delta" if wanted == "epsilon" else "epsilon"
    gap = (found.upper - found.lower) / found.upper if 0 < found.upper < math.inf else 0.0
    low = _shown(found.lower, down=True)
    high = _shown(found.upper, down=False)
    return f"{wanted} in [{low}, {high}] at {other} {given:g}, gap {gap:.1e}"


def _shown(value: float, *, down: bool) -> str:
    """Six digits, rounded outward."""
    text = f"{value:.6g}"
    if value == 0 or math.isinf(value) or (float(text) <= value if down else float(text) >= value):
        return text
    unit = 10.0 ** (math.floor(math.log10(value)) - 5)
    return f"{value - unit / 2 if down else value + unit / 2:.6g}"
