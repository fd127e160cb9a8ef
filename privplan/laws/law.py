"""The interface of a sampling law, and the registries of laws.

``Law`` has three parts: ``LawPrivacy``, ``LawDraw`` and ``LawEvidence``. A law
overrides defaults of each in one class and one file, and finds all that it needs here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from privplan.errors import Fault
from privplan.laws.judged_spec import JudgedSpec
from privplan.laws.pairs import (
    AnyPair,
    DiscretePair,
    DominatingPairs,
    Kind,
    Moments,
    Pair,
    Relation,
    RenyiBound,
    exact,
    renyi_of_pair,
)
from privplan.laws.participation import participation_law
from privplan.laws.rank_one import RankOneFactors
from privplan.registry import Registry

__all__ = [
    "FAMILIES", "LAWS", "AnyPair", "Clients", "DiscretePair", "DominatingPairs",
    "Fleet", "JudgedSpec", "Kind", "Law", "LawDraw", "LawEvidence", "LawFamily", "LawPrivacy",
    "Moments", "Pair", "Participation", "Relation", "RenyiBound", "Use", "exact",
    "renyi_of_pair",
]  # fmt: skip

Use = Literal[
    "plain sums",
    "secure-discrete",
    "a guard",
    "canaries",
    "attacks",
    "sensitivity tests",
    "max_uploads",
    "solve_for rounds",
]
"""What a law is used for besides planning and running its own spec."""

Participation = Literal["server_draws", "clients_choose", "when_they_can"]
"""What clients do: whoever follows an earlier word can follow all later ones."""

# A stated ratio has rounded digits: how near a whole cohort its expectation must be.
_WHOLE_TOLERANCE = 1e-6


class Clients(int):
    """How many clients a group has, and in ``parts`` how many have each turn."""

    parts: tuple[int, ...]

    def __new__(cls, parts: Sequence[int]) -> Clients:
        """The sum of the parts."""
        clients = super().__new__(cls, sum(parts))
        clients.parts = tuple(parts)
        return clients


class LawPrivacy(ABC):
    """The privacy of releases whose cohorts a law draws.

    Attributes:
        contributions: the most clients, or records, of one person that the privacy
            covers; set by ``SamplingLaw.of_person``.
    """

    contributions: int = 1

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
        """Moment bounds whose largest Rényi divergence bounds one release.

        By default those of the dominating pairs; None where one of these has none.
        """
        bounds = []
        pairs = self.dominating_pairs(relation, 1 / noise_multiplier, ratio).upper
        for pair in dict.fromkeys(pairs):
            bound = renyi_of_pair(pair)
            if bound is None:
                return None
            bounds.append(bound)
        return tuple(dict.fromkeys(bounds))

    def estimated_epsilon(
        self,
        noise_multiplier: float,
        times: int,
        delta: float,
        near: float,
        *,
        rough: bool,
    ) -> float | None:
        """About the epsilon of a client that is removed, near one, of alike releases.

        A rough estimate may be off by 0.1%, and by 1% where it is 4% or more from
        ``near``. None where the pairs are as fast. Not for guarantees.
        """
        return None

    @property
    def one_of(self) -> float:
        """Among how many rounds of a release a client is hidden that picks one."""
        return 1.0

    def most_contributions(self, relation: Relation) -> int:
        """The largest ``contributions`` with a privacy; 1: persons are not covered."""
        return 1

    def sensitivity(self, relation: Relation) -> int:
        """The most that neighbouring sums differ by, in clipping norms."""
        return self.contributions * (2 if relation == Relation.REPLACE_ONE else 1)

    def has_central_limit(self, relation: Relation) -> bool:
        """Whether a published central limit applies.

        It is ``q sqrt(T (exp(1/sigma^2) - 1))`` (Bu et al. 2020), where sigma is the
        noise multiplier over ``sensitivity``.
        """
        return False

    def has_theorem_1(self, relation: Relation) -> bool:
        """Whether Theorem 1 of GDPFed+ covers the law: ``accounting.closed_form``."""
        return False

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

    def mean_noise_left(self, momentum: float, rounds: int) -> float | None:
        """Root mean square over the models after each round, else as ``noise_left``.

        None where the mixtures of all rounds are alike, so that they tell it.
        """
        return None

    def rank_one_factors(self) -> RankOneFactors | None:
        """The factors of noise that one running sum correlates, which plans store."""
        return None

    def complete_at(self, round_: int) -> int:
        """The round by which all is released that a participation in a round moves."""
        return round_ + len(self.mixture(0.0, 1)) - 1


class LawDraw(ABC):
    """How a law draws the cohorts of a group.

    Attributes:
        whole_cohorts: whether each group's cohort is a fixed whole number of clients,
            so that only ratios m / n can be planned.
        turns: a client can be in one of every so many rounds.
        everyone: whether a client takes part each time that it can, so that the ratio
            is 1.
        independent_clients: whether clients of one round are drawn independently of
            each other.
        uniform_cohorts: whether cohorts of different rounds are independent, and each
            is a uniform subset of the round's ``places``, given its size.
        participation: what clients have to do.
    """

    whole_cohorts: bool = False
    turns: int = 1
    everyone: bool = False
    independent_clients: bool = False
    uniform_cohorts: bool = False
    participation: Participation = "server_draws"

    @abstractmethod
    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """Sorted positions, in 0..clients-1, of those who take part in a round.

        Args:
            generator: the stream of ``stream_round``.
            clients: clients of the group.
            ratio: sampling ratio, in (0, 1].
            round_: from 1.
        """

    def stream_round(self, round_: int) -> int:
        """The round whose random stream draws a round's cohort."""
        return round_

    def seated(self, group: str, names: Sequence[object]) -> tuple[int, np.ndarray]:
        """The clients of a group, and the order of names in which they have places."""
        return len(names), np.arange(len(names))

    def places(self, round_: int, clients: int) -> Sequence[int]:
        """Positions of those of 0..clients-1 who can be drawn in a round (from 1).

        They are public, and hashable as a whole. The sampling ratio is that of a client
        in a round that can draw it.
        """
        return range(clients)

    def drawable(self, clients: int) -> float:
        """How many clients of a group a round can draw, on average over the rounds."""
        return clients / self.turns

    def rounds_of_client(self, rounds: int) -> int:
        """The most of ``rounds`` rounds in which one client can be drawn."""
        return -(-rounds // self.turns)

    def rounds_for(self, participations: int) -> int:
        """The most rounds with that ``rounds_of_client``."""
        return participations * self.turns

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """The most of these rounds, which may repeat, that can draw one client."""
        return len(rounds)

    def executed_ratio(self, clients: int, ratio: float) -> float:
        """The ratio that ``draw`` executes where ``ratio`` was planned for a group."""
        return ratio

    def chance(self, clients: int, ratio: float) -> float:
        """The chance that a client takes part in a round that can draw it."""
        return self.executed_ratio(clients, ratio)

    def cap(self, clients: int, ratio: float) -> int | None:
        """The largest cohort that a server takes, where the law has one."""
        return None


class LawEvidence(ABC):
    """How the evidence of drawn cohorts is tested."""

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
        """Clients in rounds that the law does not allow together, one line each.

        By default it allows any rounds of ``places``.

        Args:
            cohorts: those who were drawn, by round; of a part of the rounds, where
                others are not known.
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


class Law(LawPrivacy, LawDraw, LawEvidence):
    """A sampling law: its privacy, its draw, its evidence, and what it excludes.

    Other code asks a law for a quantity and never for its name, so a law of its own
    behaviour is one file: the defaults are those of a law whose every round draws from
    all clients.

    Attributes:
        name: as specs, plans and ledgers write it.
        title: the law in messages.
        recipe_momentum: momentum of the server of the default recipe.
    """

    name: str
    title: str
    recipe_momentum: float = 0.0

    @property
    def phrase(self) -> str:
        """The law in a sentence: ``under ...``."""
        return f"{self.title} sampling"

    @property
    def single(self) -> str:
        """Name of the law with the same privacy in one release at the same ratio."""
        return self.name

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """What a spec under this law asks for and cannot have.

        Args:
            spec: the ``Spec``; reading a faulty field of it raises AttributeError.
        """
        cohort = spec.cohort
        free = spec.planning.free
        under = f"under {self.phrase}"
        if cohort is not None and self.whole_cohorts and cohort != round(cohort):
            yield Fault("cohort", f"must be a whole number {under}", cohort)
        if self.everyone and "cohort" in free:
            yield Fault("planning.free", f"cannot name cohort {under}", "cohort")
        if spec.planning.ratios == "given":
            yield from self._excluded_ratios(spec, under)
        if cohort is not None and self.everyone and cohort < spec.population:
            rule = f"must be the population ({spec.population}) {under}"
            yield Fault("cohort", rule, cohort)

    def _excluded_ratios(self, spec: JudgedSpec, under: str) -> Iterator[Fault]:
        """Stated ratios of groups that the law cannot execute."""
        for group in spec.groups:
            # A group with a fault in one of these fields has that fault only.
            fields = ("name", "clients", "sampling_ratio")
            if not all(hasattr(group, field) for field in fields):
                continue
            field = f"groups.{group.name}.sampling_ratio"
            ratio = group.sampling_ratio
            if ratio is None:
                continue
            if self.everyone and ratio != 1:
                yield Fault(field, f"must be 1 {under}", ratio)
            elif self.whole_cohorts:
                expected = ratio * self.drawable(group.clients)
                nearest = round(expected)
                is_whole = math.isclose(nearest, expected, rel_tol=_WHOLE_TOLERANCE)
                if nearest == 0 or not is_whole:
                    rule = f"must give a whole cohort of the {group.clients} clients"
                    yield Fault(field, rule, ratio)

    def excludes_use(self, use: Use) -> str | None:
        """The rule that a use breaks under this law; None where it works."""
        return None


def _law(component: object) -> Law:
    """A law from an entry point, which names a law or its class."""
    law: Any = component() if isinstance(component, type) else component
    if not isinstance(law, Law):
        raise TypeError(
            "must be a subclass of privplan.laws.law.Law, or an instance of one"
        )
    return law


LAWS: Registry[Law] = Registry("sampling", "privplan.laws", "privplan.laws", _law)
"""Sampling laws by name; ``SamplingLaw(name).law`` is the law of a name."""


class Fleet(NamedTuple):
    """The rounds and cohorts for which a planner chooses a law.

    Attributes:
        rounds: T.
        period: clients over those of a cohort: a client comes once in so many rounds.
    """

    rounds: int
    period: float

    def divisors(self, lowest: float, highest: float) -> list[int]:
        """Numbers of rounds that divide all rounds, between two limits."""
        largest = min(self.rounds, math.floor(highest))
        candidates = range(max(2, math.ceil(lowest)), largest + 1)
        return [number for number in candidates if self.rounds % number == 0]


@dataclass(frozen=True)
class LawFamily:
    """Laws that differ in whole numbers, which end their names: ``NAME:B[:K]``.

    Attributes:
        law: the law of the numbers.
        numbers: regular expression of the numbers.
        phrase: the family in messages, such as ``'NAME:B' with B in [2, 9]``.
        fitting: the numbers with cohorts of a fleet, or smaller ones, of which a
            planner chooses; None for a family that is only used where it is stated.
    """

    law: Callable[..., Law]
    numbers: str
    phrase: str
    fitting: Callable[[Fleet], Sequence[str]] | None = None


FAMILIES: Registry[LawFamily] = Registry(
    "sampling",
    "privplan.law_families",
    "privplan.laws",
    order=lambda family: family.phrase,
)
"""Families of sampling laws by name, which a number completes."""
