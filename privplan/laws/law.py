"""The interface of a sampling law, its name as a value, and the registry of laws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticKnownError, core_schema

from privplan.laws.pairs import DominatingPairs, Relation, RenyiBound, renyi_of_pair
from privplan.laws.participation import participation_law
from privplan.registry import Registry


class Law(ABC):
    """A sampling law: its privacy, its draw, and the tests of its evidence.

    Attributes:
        name: as specs, plans and ledgers write it.
        title: the law in messages.
        whole_cohorts: whether each group's cohort is a fixed whole number of clients, so that
            only ratios m / n can be planned.
        everyone: whether all clients take part in each round, so that the ratio is 1.
        independent_clients: whether clients of one round are drawn independently of each other.
        uniform_cohorts: whether cohorts of different rounds are independent, and each is a
            uniform subset of its group, or of the part whose turn it is, given its size.
        turns: parts of a group that take turns, round by round; 1 where every round draws from
            all. The sampling ratio is that of a client in a round of its turn.
    """

    name: str
    title: str
    whole_cohorts: bool = False
    everyone: bool = False
    independent_clients: bool = False
    uniform_cohorts: bool = False
    turns: int = 1

    @property
    def phrase(self) -> str:
        """The law in a sentence: ``under ...``."""
        return f"{self.title} sampling"

    def rounds_of_client(self, rounds: int) -> int:
        """The most of ``rounds`` rounds in which one client can be drawn."""
        return -(-rounds // self.turns)

    def turn(self, round_: int) -> int | None:
        """The part, from 0, from which a round (from 1) draws; None for all clients."""
        return None if self.turns == 1 else (round_ - 1) % self.turns

    @abstractmethod
    def dominating_pairs(self, relation: Relation, shift: float, ratio: float) -> DominatingPairs:
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
        return known if len(bounds) == sum(bound is not None for bound in bounds) else None

    def sensitivity(self, relation: Relation) -> int:
        """The most that neighbouring sums differ by, in clipping norms."""
        return 2 if relation == Relation.REPLACE_ONE else 1

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

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        """Probability that a client takes part 0, 1, ... times, shape (1 + rounds,).

        Args:
            rounds: ``executed_ratio`` of a round to the number of such rounds. By default the
                rounds are independent.
        """
        return participation_law(rounds)


def _law(component: object) -> Law:
    """A law from an entry point, which names a law or its class."""
    found = component() if isinstance(component, type) else component
    if not isinstance(found, Law):
        raise TypeError("must be a subclass of privplan.laws.law.Law, or an instance of one")
    return found


LAWS: Registry[Law] = Registry("sampling", "privplan.laws", "privplan.laws", _law)
"""Sampling laws by name; ``SamplingLaw(name).law`` is the law of a name."""


def _in_turns(name: str) -> Law | None:
    """The law of a name with a number of turns, which no registry can list."""
    if ":" not in name:
        return None
    from privplan.laws.cyclic_poisson import cyclic_poisson

    return cyclic_poisson(name)


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
    """

    __slots__ = ()

    FULL: ClassVar[SamplingLaw]
    POISSON: ClassVar[SamplingLaw]
    FIXED_SIZE: ClassVar[SamplingLaw]

    def __new__(cls, name: str) -> SamplingLaw:
        """The name itself, one object per name.

        Raises:
            ValueError: when no law of that name is registered.
        """
        known = _INTERNED.get(name)
        if known is None:
            if name not in LAWS.names() and _in_turns(name) is None:
                raise ValueError(f"{name!r} is not the name of a sampling law")
            known = _INTERNED.setdefault(name, super().__new__(cls, name))
        return known

    @property
    def law(self) -> Law:
        """The law of this name.

        Raises:
            InputError: when its entry point cannot be loaded.
        """
        return _in_turns(self) or LAWS.get(self)

    @classmethod
    def _validated(cls, value: object) -> SamplingLaw:
        try:
            return cls(value) if isinstance(value, str) else cls("")
        except ValueError:
            *most, last = (repr(str(name)) for name in cls)
            expected = f"{', '.join([*most, last])} or 'cyclic_poisson:B' with B in [2, 9999]"
            raise PydanticKnownError("enum", {"expected": expected}) from None

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
        description = "\n".join(line.strip() for line in (cls.__doc__ or "").strip().splitlines())
        names = [str(name) for name in cls]
        return {
            "description": description,
            "anyOf": [{"enum": names}, {"pattern": "^cyclic_poisson:([2-9]|[1-9][0-9]{1,3})$"}],
            "title": cls.__name__,
            "type": "string",
        }


_FIRST = ("full", "poisson", "fixed_size")
_INTERNED: dict[str, SamplingLaw] = {name: str.__new__(SamplingLaw, name) for name in _FIRST}
SamplingLaw.FULL = _INTERNED["full"]
SamplingLaw.POISSON = _INTERNED["poisson"]
SamplingLaw.FIXED_SIZE = _INTERNED["fixed_size"]
