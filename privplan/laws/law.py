"""The interface of a sampling law, its name as a value, and the registry of laws."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticKnownError, core_schema

from privplan.errors import Fault, InputError, did_you_mean
from privplan.laws.participation import participation_law
from privplan.registry import Registry

# --- Neighbouring relations, and the pairs of distributions that dominate one release. -----------
# A pair (P, Q) dominates a release when the hockey-stick divergence of the release on any two
# neighbours is at most that of P from Q at every epsilon (Zhu, Dong and Wang 2022, Definition 7).
# Sensitivities are in units of the clipping norm.


class Relation(StrEnum):
    """Which data sets are neighbours.

    ``ADD_REMOVE``: one client more or less. ``REPLACE_ONE``: one client's data replaced.
    ``ZERO_OUT``: one client's contribution replaced by zero, the population unchanged.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"


class Kind(IntEnum):
    """The shapes of Gaussian pairs; ``privplan.accounting.pld.pairs`` defines them."""

    REMOVE = 0
    ADD = 1
    SWAP = 2
    STITCHED = 3


@dataclass(frozen=True, order=True)
class Pair:
    """A pair of Gaussian mixtures: its shape, its shift (over the noise) and the sampling ratio."""

    kind: Kind
    shift: float
    ratio: float


@dataclass(frozen=True, order=True)
class DiscretePair:
    """A pair given by the finite distribution of its privacy loss under P.

    The mass of Q at a loss l is ``mass * exp(-l)``. A mechanism without a Gaussian pair supplies
    one of these, with losses rounded so that the pair still dominates.
    """

    losses: tuple[float, ...]  # finite privacy losses, ascending, shape (points,)
    # probability of each under P, shape (points,); the rest, 1 less their sum, has an infinite loss
    masses: tuple[float, ...]
    rest_below: bool = (
        False  # the rest has a loss of minus infinity instead: in lower bounds
    )

    def __post_init__(self) -> None:
        losses, masses = np.array(self.losses), np.array(self.masses)
        if not len(losses) or not (
            np.isfinite(losses).all() and (np.diff(losses) > 0).all()
        ):
            raise InputError.one("losses", "must be finite and ascending", self.losses)
        total, shape = float(masses.sum()), masses.shape
        if (
            shape != losses.shape
            or not (masses >= 0).all()
            or not 0 < total <= 1 + 1e-12
        ):
            rule = "must be one probability per loss, with a sum in (0, 1]"
            raise InputError.one("masses", rule, self.masses)
        if float(masses @ np.exp(np.minimum(-losses, 700.0))) > 1 + 1e-9:
            raise InputError.one(
                "masses", "must give Q a mass of at most 1", self.masses
            )

    @cached_property
    def infinite(self) -> float:
        """Probability under P of an infinite loss."""
        return 0.0 if self.rest_below else max(0.0, -math.fsum((*self.masses, -1.0)))


AnyPair = Pair | DiscretePair


@dataclass(frozen=True)
class DominatingPairs:
    """Pairs in each of two directions that bound one release."""

    upper: tuple[AnyPair, AnyPair]  # one dominating pair per direction
    # one attained pair per direction; the same where the bound is exact
    lower: tuple[AnyPair, AnyPair]


def exact(first: AnyPair, second: AnyPair) -> DominatingPairs:
    """Pairs that are attained, so that they bound a release from both sides."""
    return DominatingPairs((first, second), (first, second))


class Moments(StrEnum):
    """How the moments of a release's likelihood ratio are bounded.

    ``SAMPLED``: N(1) with probability q, else N(0), against N(0) (Mironov et al. 2019).
    ``SWAP``: (1-q)N(0) + qN(1) against (1-q)N(0) + qN(-1).
    ``WITHOUT_REPLACEMENT``: the bound of Wang et al. 2019, Theorem 9.
    """

    SAMPLED = "sampled"
    SWAP = "swap"
    WITHOUT_REPLACEMENT = "without_replacement"


@dataclass(frozen=True)
class RenyiBound:
    """The moments that bound the Rényi divergence of one release."""

    moments: Moments  # which bound
    noise_multiplier: float  # noise standard deviation over the sensitivity
    ratio: float  # sampling ratio, in (0, 1]


def renyi_of_pair(pair: AnyPair) -> RenyiBound | None:
    """The moment bound of a Gaussian pair; None where no bound is known.

    ``ADD`` has the bound of ``REMOVE``, whose divergence is never smaller (Mironov et al. 2019,
    Theorem 5).
    """
    if not isinstance(pair, Pair) or pair.kind == Kind.STITCHED:
        return None
    moments = (
        Moments.SWAP if pair.kind == Kind.SWAP and pair.ratio < 1 else Moments.SAMPLED
    )
    doubled = pair.kind == Kind.SWAP and pair.ratio == 1
    return RenyiBound(moments, (0.5 if doubled else 1.0) / pair.shift, pair.ratio)


# --- The interface of a sampling law, its name as a value, and the registry of laws. -------------

Use = Literal[
    "plain sums", "secure-discrete", "a guard", "canaries", "attacks", "sensitivity tests",
    "max_uploads", "solve_for rounds",
]  # fmt: skip
"""What a law is used for besides planning and running its own spec."""


class Clients(int):
    """How many clients a group has, and in ``parts`` how many each part has that takes turns."""

    parts: tuple[int, ...]

    def __new__(cls, parts: Sequence[int]) -> Clients:
        """The sum of the parts."""
        found = super().__new__(cls, sum(parts))
        found.parts = tuple(parts)
        return found


class Law(ABC):
    """A sampling law: its privacy, its draw, the tests of its evidence, and what it excludes.

    Other code asks a law for a quantity and never for its name, so a law of its own behaviour is
    one file: the defaults below are those of a law whose every round draws from all clients.

    Attributes:
        name: as specs, plans and ledgers write it.
        title: the law in messages.
        whole_cohorts: whether each group's cohort is a fixed whole number of clients, so that
            only ratios m / n can be planned.
        turns: a client can be in one of every so many rounds.
        everyone: whether a client takes part each time that it can, so that the ratio is 1.
        independent_clients: whether clients of one round are drawn independently of each other.
        uniform_cohorts: whether cohorts of different rounds are independent, and each is a
            uniform subset of the round's ``places``, given its size.
        recipe_momentum: momentum of the server of the default recipe.
        contributions: the most clients, or records, of one person that the privacy covers; set by
            ``SamplingLaw.of_person``.
    """

    name: str
    title: str
    whole_cohorts: bool = False
    one_of: int = 1  # rounds of a release, of which a client picks one by itself
    turns: int = 1
    everyone: bool = False
    independent_clients: bool = False
    uniform_cohorts: bool = False
    recipe_momentum: float = 0.0
    contributions: int = 1

    @property
    def phrase(self) -> str:
        """The law in a sentence: ``under ...``."""
        return f"{self.title} sampling"

    @property
    def single(self) -> str:
        """Name of the law under which one release has the same privacy at the same ratio."""
        return self.name

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """What a spec under this law asks for and cannot have.

        Args:
            spec: the ``Spec``; reading a field of it that is faulty raises AttributeError.
        """
        cohort, free, under = spec.cohort, spec.planning.free, f"under {self.phrase}"
        if cohort is not None and self.whole_cohorts and cohort != round(cohort):
            yield Fault("cohort", f"must be a whole number {under}", cohort)
        if self.everyone and "cohort" in free:
            yield Fault("planning.free", f"cannot name cohort {under}", "cohort")
        for group in spec.groups if spec.planning.ratios == "given" else ():
            if not all(
                hasattr(group, name) for name in ("name", "clients", "sampling_ratio")
            ):
                continue
            where, ratio = f"groups.{group.name}.sampling_ratio", group.sampling_ratio
            expected = (ratio or 0.0) * self.drawable(group.clients)
            whole = round(expected) > 0 and math.isclose(
                round(expected), expected, rel_tol=1e-6
            )
            if ratio is not None and self.everyone and ratio != 1:
                yield Fault(where, f"must be 1 {under}", ratio)
            elif ratio is not None and self.whole_cohorts and not whole:
                rule = f"must give a whole cohort of the {group.clients} clients"
                yield Fault(where, rule, ratio)
        if cohort is not None and self.everyone and cohort < spec.population:
            yield Fault(
                "cohort", f"must be the population ({spec.population}) {under}", cohort
            )

    def excludes_use(self, use: Use) -> str | None:
        """The rule that a use breaks under this law; None where it works."""
        return None

    def alternatives(self, spec: Any) -> Sequence[str]:
        """Laws that trust nobody else, this one among them, of which the planner may choose."""
        return ()

    def seated(self, group: str, names: Sequence[object]) -> tuple[int, np.ndarray]:
        """The clients of a group, and the order of their names in which they have its places."""
        return len(names), np.arange(len(names))

    def places(self, round_: int, clients: int) -> Sequence[int]:
        """Hashable positions of those of 0..clients-1 who can be drawn in a round (from 1).

        They are public. The sampling ratio is that of a client in a round that can draw it.
        """
        return range(clients)

    def drawable(self, clients: int) -> float:
        """How many of a group's clients a round can draw, on average over the rounds."""
        return clients / self.turns

    def rounds_of_client(self, rounds: int) -> int:
        """The most of ``rounds`` rounds in which one client can be drawn."""
        return -(-rounds // self.turns)

    def rounds_for(self, participations: int) -> int:
        """The most rounds with that ``rounds_of_client``."""
        return participations * self.turns

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """The most of these rounds, which may repeat, in which one client can be drawn."""
        return len(rounds)

    def stream_round(self, round_: int) -> int:
        """The round whose random stream draws a round's cohort."""
        return round_

    def complete_at(self, round_: int) -> int:
        """The round by which all is released that the privacy of taking part in a round is of."""
        return round_ + len(self.mixture(0.0, 1)) - 1

    def mixture(
        self, momentum: float, rounds: int, round_: int = 1
    ) -> tuple[float, ...]:
        """Factors on a round's sum and on those before it in what is released.

        Those on one sum, over the rounds of the run, have norm 1 at most.

        Args:
            momentum: of the server.
            rounds: of the whole run.
            round_: whose release it is.
        """
        return (1.0,)

    def noise_left(self, momentum: float, rounds: int) -> float:
        """Noise of the last model over that of independent noise in each round."""
        return 1.0

    @abstractmethod
    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """The pairs that bound one Gaussian release.

        Args:
            relation: which data sets are neighbours.
            shift: one clipping norm over the noise standard deviation, positive.
            ratio: sampling ratio, in (0, 1].
        """

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...] | None:
        """Moment bounds whose largest Rényi divergence bounds one release; None without any.

        By default those of the dominating pairs.
        """
        pairs = self.dominating_pairs(relation, 1 / noise_multiplier, ratio).upper
        bounds = [renyi_of_pair(pair) for pair in dict.fromkeys(pairs)]
        known = tuple(dict.fromkeys(bound for bound in bounds if bound is not None))
        return (
            known if len(bounds) == sum(bound is not None for bound in bounds) else None
        )

    def most_contributions(self, relation: Relation) -> int:
        """The largest ``contributions`` with a privacy; 1 where persons are not covered."""
        return 1

    def sensitivity(self, relation: Relation) -> int:
        """The most that neighbouring sums differ by, in clipping norms."""
        return self.contributions * (2 if relation == Relation.REPLACE_ONE else 1)

    def has_central_limit(self, relation: Relation) -> bool:
        """Whether the limit ``q sqrt(T (exp(1/sigma^2) - 1))`` of Bu et al. 2020 applies.

        sigma is the noise multiplier over ``sensitivity``.
        """
        return False

    def has_theorem_1(self, relation: Relation) -> bool:
        """Whether Theorem 1 of GDPFed+ covers the law; see ``accounting.closed_form``."""
        return False

    @abstractmethod
    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """Sorted positions, in 0..clients-1, of those who take part in a round (from 1)."""

    def executed_ratio(self, clients: int, ratio: float) -> float:
        """The ratio that ``draw`` executes where ``ratio`` was planned for a group."""
        return ratio

    def chance(self, clients: int, ratio: float) -> float:
        """The chance that a client takes part in a round that can draw it."""
        return self.executed_ratio(clients, ratio)

    def cap(self, clients: int, ratio: float) -> int | None:
        """The largest cohort that a server takes, where the law has one."""
        return None

    @abstractmethod
    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """How the cohort sizes of a group do not fit the law, one line each.

        Args:
            counts: realised cohort of each round.
            clients: clients of the group.
            ratio: planned sampling ratio.
            level: largest chance that an honest run fails one test.
        """

    def attendance_faults(
        self, cohorts: Mapping[int, Collection[int]], clients: int
    ) -> Iterator[str]:
        """Which clients were in rounds that the law does not allow together, one line each.

        By default it allows any rounds of ``places``.

        Args:
            cohorts: those who were drawn, by round; of a part of the rounds, where others are
                not known.
            clients: clients of the group.
        """
        return iter(())

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        """Probability that a client takes part 0, 1, ... times, shape (1 + rounds,).

        Args:
            rounds: ``chance`` of a round to the number of such rounds. By default the
                rounds are independent.
        """
        return participation_law(rounds)


def _law(component: object) -> Law:
    """A law from an entry point, which names a law or its class."""
    found = component() if isinstance(component, type) else component
    if not isinstance(found, Law):
        raise TypeError(
            "must be a subclass of privplan.laws.law.Law, or an instance of one"
        )
    return found


LAWS: Registry[Law] = Registry("sampling", "privplan.laws", "privplan.laws", _law)
"""Sampling laws by name; ``SamplingLaw(name).law`` is the law of a name."""


@dataclass(frozen=True)
class LawFamily:
    """Laws that differ in whole numbers, with which their names end: ``NAME:NUMBER[:NUMBER]``."""

    law: Callable[..., Law]  # the law of the numbers
    numbers: str  # regular expression of the numbers
    phrase: str  # the family in messages, such as ``'NAME:B' with B in [2, 9]``


FAMILIES: Registry[LawFamily] = Registry(
    "sampling", "privplan.law_families", "privplan.laws", order=lambda one: one.phrase
)
"""Families of sampling laws by name, which a number completes."""


_OF_PERSON = re.compile(
    r"(.+) \(up to ([2-9]|[1-9][0-9]{1,2}) (?:client|record)s of one person\)"
)


@lru_cache(maxsize=1024)
def _numbered(name: str) -> Law | None:
    """The law of a name with a number, or of persons; None for any other name."""
    if persons := _OF_PERSON.fullmatch(name):
        if persons[1] not in LAWS.names() and _numbered(persons[1]) is None:
            return None
        law = copy(SamplingLaw(persons[1]).law)
        law.name, law.contributions = name, int(persons[2])
        law.title = f"{law.title}{name.removeprefix(persons[1])}"
        return (
            law
            if law.contributions <= law.most_contributions(Relation.ADD_REMOVE)
            else None
        )
    family, colon, number = name.partition(":")
    if not colon or not FAMILIES.has_exactly(family):
        return None
    found = FAMILIES.get(family)
    known = re.fullmatch(found.numbers, number)
    return found.law(*map(int, number.split(":"))) if known else None


class _Names(type):
    """Makes ``SamplingLaw`` iterable over the names of all registered laws."""

    def __iter__(cls) -> Iterator[SamplingLaw]:
        names = (*_FIRST, *(name for name in LAWS.names() if name not in _FIRST))
        return iter([SamplingLaw(name) for name in names])


class SamplingLaw(str, metaclass=_Names):
    """How a round's cohort is drawn from a group of n clients.

    ``FULL``: everybody. ``POISSON``: each client independently with the sampling ratio.
    ``FIXED_SIZE``: a cohort of m of n, without replacement, ratio m / n. ``cyclic_poisson:B``: each
    client of one of B parts, which take turns, independently with the sampling ratio.
    ``capped_poisson:N``: as Poisson, and cut at a cap that one of N cohorts exceeds at most.
    ``random_allocation:B``: each client in one of every B rounds, chosen by itself.
    ``min_separation:B``: each client when it can, its rounds B apart or more.
    ``banded_separation:B`` and, in B turns, ``cyclic_allocation:B:K``: so with correlated noise.
    """

    __slots__ = ()

    FULL: ClassVar[SamplingLaw]
    POISSON: ClassVar[SamplingLaw]
    FIXED_SIZE: ClassVar[SamplingLaw]

    def __new__(cls, name: str) -> SamplingLaw:
        """The name itself, one object per name."""
        known = _INTERNED.get(name)
        if known is None:
            if name not in LAWS.names() and _numbered(name) is None:
                raise ValueError(f"{name!r} is not the name of a sampling law")
            known = _INTERNED.setdefault(name, super().__new__(cls, name))
        return known

    @property
    def law(self) -> Law:
        """The law of this name."""
        return _numbered(self) or LAWS.get(self)

    def of_person(self, contributions: int, unit: str = "client") -> SamplingLaw:
        """The law with the privacy of a person who has up to so many clients, or records."""
        if contributions == 1:
            return self
        found = _OF_PERSON.fullmatch(self)
        name = found[1] if found else str(self)
        return SamplingLaw(f"{name} (up to {contributions} {unit}s of one person)")

    @classmethod
    def _validated(cls, value: object) -> SamplingLaw:
        try:
            return cls(value) if isinstance(value, str) else cls("")
        except ValueError:
            raise PydanticKnownError("enum", {"expected": known_laws(value)}) from None

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Validate a name and write it as text."""
        return core_schema.no_info_plain_validator_function(
            cls._validated,
            ref=f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """An enumeration of the registered names."""
        description = "\n".join(
            line.strip() for line in (cls.__doc__ or "").strip().splitlines()
        )
        names = [str(name) for name in cls]
        numbered = [
            {"pattern": f"^{name}:{one.numbers}$"} for name, one in FAMILIES.items()
        ]
        return {
            "description": description,
            "anyOf": [{"enum": names}, *numbered],
            "title": cls.__name__,
            "type": "string",
        }


def known_laws(found: object) -> str:
    """All laws, and what was probably meant by another name, for messages."""
    family, named = str(found).partition(":")[0], FAMILIES.names()
    if family in named:
        return FAMILIES.get(family).phrase
    near = did_you_mean(family, (*map(str, SamplingLaw), *named))
    *most, last = (
        *map(repr, map(str, SamplingLaw)),
        *(one.phrase for _, one in FAMILIES.items()),
    )
    return f"{', '.join(most)} or {last}{near}"


_FIRST = ("full", "poisson", "fixed_size")
_INTERNED: dict[str, SamplingLaw] = {
    name: str.__new__(SamplingLaw, name) for name in _FIRST
}
SamplingLaw.FULL = _INTERNED["full"]
SamplingLaw.POISSON = _INTERNED["poisson"]
SamplingLaw.FIXED_SIZE = _INTERNED["fixed_size"]
