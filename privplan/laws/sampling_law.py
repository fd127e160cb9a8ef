"""The name of a sampling law as a value, which specs, plans and ledgers hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticKnownError, core_schema

from privplan.errors import did_you_mean
from privplan.guidance import GuidedKind, GuidedName
from privplan.laws.law import FAMILIES, LAWS, Law
from privplan.laws.pairs import Relation

# A law for persons: the law, in brackets the most clients or records of one person.
_OF_PERSON = re.compile(
    r"(.+) \(up to ([2-9]|[1-9][0-9]{1,2}) (?:client|record)s of one person\)"
)


@lru_cache(maxsize=1024)
def _composed(name: str) -> Law | None:
    """The law of a name with a number, or of persons; None for any other name."""
    of_person = _OF_PERSON.fullmatch(name)
    if of_person is not None:
        return _law_of_person(name, of_person[1], int(of_person[2]))
    family_name, colon, numbers = name.partition(":")
    if not colon or not FAMILIES.has_exactly(family_name):
        return None
    family = FAMILIES.get(family_name)
    if re.fullmatch(family.numbers, numbers) is None:
        return None
    return family.law(*map(int, numbers.split(":")))


def _law_of_person(name: str, plain_name: str, contributions: int) -> Law | None:
    """A plain law that covers so many clients of a person; None where it does not."""
    if plain_name not in LAWS.names() and _composed(plain_name) is None:
        return None
    law = copy(SamplingLaw(plain_name).law)
    law.name = name
    law.title += name.removeprefix(plain_name)
    law.contributions = contributions
    # No law covers more under another relation than under add/remove.
    is_covered = contributions <= law.most_contributions(Relation.ADD_REMOVE)
    if is_covered:
        return law
    return None


class _Names(GuidedKind):
    """Makes ``SamplingLaw`` iterable over the names of all registered laws."""

    def __iter__(cls) -> Iterator[SamplingLaw]:  # noqa: N805
        registered = [name for name in LAWS.names() if name not in _FIRST]
        return iter([SamplingLaw(name) for name in (*_FIRST, *registered)])


class SamplingLaw(GuidedName, str, metaclass=_Names):
    """How a round's cohort is drawn from a group of n clients.

    ``FULL``: everybody. ``POISSON``: each client independently with the sampling ratio.
    ``FIXED_SIZE``: a cohort of m of n, without replacement, ratio m / n.
    ``cyclic_poisson:B``: each client of one of B parts, which take turns, independently
    with the sampling ratio. ``capped_poisson:N``: as Poisson, and cut at a cap that one
    of N cohorts exceeds at most. ``random_allocation:B``: each client in one of every B
    rounds, chosen by itself. ``min_separation:B``: each client when it can, its rounds
    B apart or more. ``banded_separation:B`` and, in B turns, ``cyclic_allocation:B:K``:
    so with correlated noise. ``balls_in_bins:T``: each client in one of all T rounds,
    chosen by itself, with noise that is correlated over all of them.
    """

    __slots__ = ()

    FULL: ClassVar[SamplingLaw]
    POISSON: ClassVar[SamplingLaw]
    FIXED_SIZE: ClassVar[SamplingLaw]

    def __new__(cls, name: str) -> SamplingLaw:
        """The name itself, one object per name."""
        interned = _INTERNED.get(name)
        if interned is not None:
            return interned
        if name not in LAWS.names() and _composed(name) is None:
            raise ValueError(f"sampling: {rule_of_laws(name)}, found {name!r}")
        return _INTERNED.setdefault(name, super().__new__(cls, name))

    @property
    def law(self) -> Law:
        """The law of this name."""
        return _composed(self) or LAWS.get(self)

    def of_person(self, contributions: int, unit: str = "client") -> SamplingLaw:
        """The law with the privacy of a person of up to so many clients, or records."""
        if contributions == 1:
            return self
        of_person = _OF_PERSON.fullmatch(self)
        name = of_person[1] if of_person else str(self)
        return SamplingLaw(f"{name} (up to {contributions} {unit}s of one person)")

    @classmethod
    def _validated(cls, value: object) -> SamplingLaw:
        try:
            if isinstance(value, str):
                return cls(value)
            return cls("")
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
        lines = (cls.__doc__ or "").strip().splitlines()
        names = [str(name) for name in cls]
        numbered = [
            {"pattern": f"^{name}:{family.numbers}$"}
            for name, family in FAMILIES.items()
        ]
        return {
            "description": "\n".join(line.strip() for line in lines),
            "anyOf": [{"enum": names}, *numbered],
            "title": cls.__name__,
            "type": "string",
        }


def known_laws(value: object) -> str:
    """All laws, and what was probably meant by another name, for messages.

    Of a family with wrong numbers, its numbers.
    """
    name = str(value).partition(":")[0]
    families = FAMILIES.names()
    if name in families:
        return FAMILIES.get(name).phrase
    laws = [str(law) for law in SamplingLaw]
    near = did_you_mean(name, (*laws, *families))
    phrases = [repr(law) for law in laws]
    phrases += [family.phrase for _, family in FAMILIES.items()]
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}{near}"


def rule_of_laws(value: object) -> str:
    """The rule that a value breaks which is the name of no law."""
    names = known_laws(value)
    if " or " in names:
        return f"must be one of {names}"
    return f"must be {names}"


_FIRST = ("full", "poisson", "fixed_size")
_INTERNED: dict[str, SamplingLaw] = {
    name: str.__new__(SamplingLaw, name) for name in _FIRST
}
SamplingLaw.FULL = _INTERNED["full"]
SamplingLaw.POISSON = _INTERNED["poisson"]
SamplingLaw.FIXED_SIZE = _INTERNED["fixed_size"]
