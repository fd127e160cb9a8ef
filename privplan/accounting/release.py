"""What was released, as values: sampling law, neighbouring relation, release, history.

A release is one noisy sum of clipped client updates. Its ``noise_multiplier`` is the
standard deviation of the noise on the sum divided by the clipping norm of the client
that is being protected. Values here have no behaviour beyond checking themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

from privplan.errors import Fault, InputError
from privplan.guidance import Guided, explained_call, explained_init
from privplan.laws.law import Relation as Relation
from privplan.laws.sampling_law import SamplingLaw as SamplingLaw
from privplan.values import Shown

SHORT = 12  # letters of a plan's digest in tables and answers
GAUSSIAN = "gaussian"  # the family of noise where none is named

Unit = Literal["client", "record"]
"""Whom an epsilon protects: a client with all its data, or one record."""


def is_client(unit: str) -> bool:
    """Whether it is the unit that is meant where none is named."""
    return unit == "client"


def named_unit(unit: Unit, person: str | None, contributions: int = 1) -> str:
    """Whom a budget protects, as every sentence names it.

    Args:
        unit: of the plan.
        person: the word of its spec, such as patient.
        contributions: the most units of one person; with several the budget protects
            the person.
    """
    if person is not None:
        return person
    if contributions > 1:
        return "person"
    return unit


def with_article(word: str) -> str:
    """A word behind its article."""
    if word[0] in "aeiou":
        return f"an {word}"
    return f"a {word}"


def named_law(sampling: str, unit: Unit) -> str:
    """The sampling law with what it draws: ``poisson``, or ``poisson of records``."""
    if unit == "client" or f"{unit}s of" in sampling:
        return sampling
    return f"{sampling} of {unit}s"


def identity(digest: str, unit: str, relation: str, person: str | None = None) -> str:
    """A plan as tables state it: the digest's first letters, unit and relation."""
    protected = f" (each {person})" if person else ""
    return f"plan {digest[:SHORT]}, unit {unit}{protected}, {relation}"


@explained_init
@dataclass(frozen=True, order=True)
class Release(Guided):
    """One round's release as the protected client sees it.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clipping norm;
            0 means released without noise (infinite epsilon), ``inf`` means not
            released.
        sampling_ratio: chance that a given client takes part, in [0, 1].
        sampling: the law by which the cohort was drawn.
        family: the noise, a name of ``noise_families.NOISE_FAMILIES``.

    Raises:
        InputError: when a value is out of range.
    """

    noise_multiplier: float
    sampling_ratio: float
    sampling: SamplingLaw = SamplingLaw.POISSON
    family: str = GAUSSIAN

    def __post_init__(self) -> None:
        faults = []
        if (
            not isinstance(self.noise_multiplier, Real)
            or not self.noise_multiplier >= 0
        ):
            faults.append(
                Fault("noise_multiplier", "must be 0 or more", self.noise_multiplier)
            )
        if (
            not isinstance(self.sampling_ratio, Real)
            or not 0 <= self.sampling_ratio <= 1
        ):
            faults.append(
                Fault("sampling_ratio", "must be in [0, 1]", self.sampling_ratio)
            )
        try:
            object.__setattr__(self, "sampling", SamplingLaw(self.sampling))
        except (TypeError, ValueError):
            rule = f"must be one of {', '.join(SamplingLaw)}"
            faults.append(Fault("sampling", rule, self.sampling))
        else:
            if self.sampling_ratio != 1 and self.sampling.law.everyone:
                rule = f"must be 1 under {self.sampling.law.phrase}"
                faults.append(Fault("sampling_ratio", rule, self.sampling_ratio))
        if faults:
            raise InputError(faults)

    def __mul__(self, times: int) -> History:
        return History([(self, times)])

    __rmul__ = __mul__


def _of_person(counts: Counter[Release], like: SamplingLaw) -> Counter[Release]:
    """The releases to a person with as many clients, or records, as ``like`` counts."""
    contributions = like.law.contributions
    unit = "record" if "records of" in like else "client"
    counts_of_person: Counter[Release] = Counter()
    for release, count in counts.items():
        try:
            law = release.sampling.of_person(contributions, unit)
        except ValueError:
            units = f"{contributions} {unit}s of one person"
            rule = f"must cover {units}, as other releases do"
            raise InputError.one("sampling", rule, str(release.sampling)) from None
        counts_of_person[replace(release, sampling=law)] += count
    return counts_of_person


class History(Shown):
    """A multiset of releases: neither their order nor their batches matter.

    Equal releases are merged into one count, so two histories are equal exactly when
    they hold the same releases the same number of times. A history is of one person:
    where a release counts several clients of it, all do.

    Args:
        counts: pairs of a release and how many times it happened (0 or more).

    Raises:
        InputError: when a count is negative or not a whole number, or a pair is none.

    >>> privplan.History([(privplan.Release(1.5, 0.02), 50)]).rounds
    50
    """

    __slots__ = ("_counts",)

    @explained_call
    def __init__(self, counts: Iterable[tuple[Release, int]] = ()) -> None:
        merged: Counter[Release] = Counter()
        for pair in counts if isinstance(counts, Iterable) else [counts]:
            if not (
                isinstance(pair, tuple)
                and len(pair) == 2
                and isinstance(pair[0], Release)
            ):
                rule = "must be pairs of a Release and how many times it happened"
                raise InputError.one("releases", rule, type(pair).__name__)
            release, count = pair
            is_number = isinstance(count, Real) and not isinstance(count, bool)
            if not is_number or count % 1 or count < 0:
                raise InputError.one(
                    "rounds", "must be a whole number, 0 or more", count
                )
            merged[release] += int(count)
        persons = {
            release.sampling.law.contributions: release.sampling for release in merged
        }
        if len(persons) > 1:
            merged = _of_person(merged, persons[max(persons)])
        self._counts = tuple(sorted((r, n) for r, n in merged.items() if n))

    @classmethod
    def repeated(cls, release: Release, rounds: int) -> History:
        """The same release in each of ``rounds`` rounds."""
        return cls([(release, rounds)])

    def __getitem__(self, place: Any) -> Any:
        """A pair of a release and its count, in the order of ``iter``."""
        return self._counts[place]

    def __iter__(self) -> Iterator[tuple[Release, int]]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __add__(self, other: History) -> History:
        if not isinstance(other, History):
            return NotImplemented
        return History([*self, *other])

    def __radd__(self, other: object) -> History:
        """The history itself behind the 0 with which ``sum`` begins."""
        if other == 0:
            return self
        return NotImplemented

    def __mul__(self, times: int) -> History:
        return History([(release, count * times) for release, count in self])

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._counts == other._counts

    def __hash__(self) -> int:
        return hash(self._counts)

    @property
    def rounds(self) -> int:
        """Number of releases in all."""
        return sum(count for _, count in self._counts)
