"""Certificates: the bounds of accountants on the epsilon of a history, row by row.

A row names everything an epsilon depends on: accountant, delta, sampling law and
neighbouring relation. Exactly one accountant's rows carry the guarantee; the others
stand beside it so that a disagreement can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

from privplan.accounting.accountant import Accountant, Bounded, checked_relation
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.release import History, Relation, Unit, is_client, named_law
from privplan.errors import InputError, UnsupportedError
from privplan.guidance import Guided, checked_call
from privplan.values import Named, Shown, ValueKind

# Two intervals are only called apart when the gap is more than rounding in either.
_RELATIVE_GAP = 1e-6
_PROVEN = ("two-sided bound", "upper bound")
NO_BOUND_HERE = "published formula, no bound here"
"""Kind of a row of a formula whose conditions fail."""
_NO_BOUNDS = ("approximation", "published formula", NO_BOUND_HERE)
# Ends the kind of a row that bounds the epsilon of one run alone.
OF_ONE_RUN = ", one run"


class CertificateRow(Guided, BaseModel, metaclass=ValueKind):
    """Bounds on one group's epsilon by one accountant.

    In JSON an infinite epsilon is the string ``"inf"``, because strict JSON has no
    infinity; reading the row back turns it into a number again.

    Attributes:
        group: name of the group that the history belongs to.
        accountant: name in the catalogue of accountants.
        epsilon_lower: epsilon is at least this at ``delta``; 0 when nothing is known.
        epsilon_upper: epsilon is at most this at ``delta``.
        delta: failure probability, in (0, 1).
        sampling: sampling law, or the laws joined by ``+`` when a history mixes them.
        relation: neighbouring relation.
        version: library and version that computed the row.
        guarantee: whether a plan may rest on ``epsilon_upper``.
        kind: what the bounds are: ``two-sided bound``, ``upper bound``, ``second
            opinion``, ``approximation``, ``published formula`` or ``NO_BOUND_HERE``,
            with ``OF_ONE_RUN`` where the guarantee is of the best of several runs and
            this row is not.
        unit: whom epsilon protects; left out of JSON for ``client``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    accountant: str
    epsilon_lower: float = Field(ge=0)
    epsilon_upper: float = Field(ge=0)
    delta: float = Field(gt=0, lt=1)
    sampling: str
    relation: Relation
    version: str
    guarantee: bool
    kind: str
    unit: Unit = Field("client", exclude_if=is_client)

    @model_validator(mode="after")
    def _ordered(self) -> CertificateRow:
        if not self.epsilon_lower <= self.epsilon_upper:
            raise ValueError(
                "epsilon_lower: must be at most epsilon_upper "
                f"({self.epsilon_upper!r}), not {self.epsilon_lower!r}"
            )
        return self

    @property
    def is_bound(self) -> bool:
        """Whether epsilon is surely at most ``epsilon_upper``, of one run or of all."""
        return self.kind.removesuffix(OF_ONE_RUN) not in _NO_BOUNDS

    @property
    def is_proven(self) -> bool:
        """Whether ``epsilon_upper`` is an upper bound that this project proves."""
        return self.kind in _PROVEN

    @property
    def law(self) -> str:
        """The sampling law with what it draws, for tables."""
        return named_law(self.sampling, self.unit)

    @field_serializer("epsilon_lower", "epsilon_upper", when_used="json")
    def _strict_json(self, value: float) -> float | str:
        if math.isinf(value):
            return "inf"
        return value


class Certificate(Shown, Bounded, Named[CertificateRow]):
    """Bounds on epsilon of a plan or of ``account``: a row per group and accountant.

    Attributes:
        notes: why accountants have no row.
        warnings: what a reader should know of the rows.

    >>> plan.certificate.of("strict").epsilon <= 2
    True
    """

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """Upper bound on epsilon that is guaranteed; the largest of all groups.

        Where no row carries the guarantee of a plan, as other accountants were asked
        for, it is that of the rows whose bounds are proven; infinite without any.
        """
        guaranteed = [row for row in self if row.guarantee]
        proven = [row for row in self if row.is_proven]
        return max(
            (row.epsilon_upper for row in guaranteed or proven), default=math.inf
        )

    def __float__(self) -> float:
        return self.epsilon

    # As it is a tuple, the sum of two would be their rows side by side.
    if not TYPE_CHECKING:

        def __add__(self, other: Any) -> Any:
            raise TypeError(
                "certificates are not added; privplan.Book adds what runs spend, and "
                "privplan.compose(first + second) composes their histories"
            )

    def __getitem__(self, key: Any) -> Any:
        """The rows of a group or else of an accountant, or the row at an index."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        by_accountant = [row for row in self if row.accountant == key]
        if by_accountant and key not in {row.group for row in self}:
            return Certificate(by_accountant)
        return self.of(key)

    def of(self, group: str) -> Certificate:
        """The rows of a group."""
        return Certificate(row for row in self if row.group == Named(self)[group].group)


def laws(history: History) -> str:
    """The sampling laws of a history, joined by ``+``; ``none`` without a release."""
    names = {str(release.sampling) for release, _ in history}
    return "+".join(sorted(names)) or "none"


@checked_call
def certify(
    history: History,
    *,
    group: str,
    delta: float,
    relation: Relation | str,
    accountants: Sequence[str | Accountant] = ("pld", "rdp", "prv"),
    unit: Unit = "client",
) -> Certificate:
    """Rows by the accountants that answer; ``notes`` say why the others do not.

    Args:
        history: the releases.
        group: whose releases they are.
        delta: failure probability, in (0, 1).
        relation: which data sets are neighbours.
        accountants: names, or accountants.
        unit: whom epsilon protects.

    >>> found = privplan.certify(
    ...     plan.history("strict"), group="strict", delta=1e-5, relation="add_remove"
    ... )
    >>> found["strict"].epsilon == found.epsilon
    True
    """
    if not isinstance(history, History):
        rule = "must be a History such as plan.history(GROUP); plan.certificate has all"
        raise InputError.one("history", rule, type(history).__name__)
    relation = checked_relation(relation)
    rows: list[CertificateRow] = []
    notes: list[str] = []
    for chosen in accountants:
        if isinstance(chosen, str) or not hasattr(chosen, "why_not"):
            accountant = by_name(chosen)  # type: ignore[arg-type]
        else:
            accountant = chosen
        try:
            bounds = accountant.epsilon(history, delta, relation)
        except UnsupportedError as error:
            notes.append(str(error))
            continue
        row = CertificateRow(
            group=group,
            accountant=accountant.name,
            epsilon_lower=bounds.lower,
            epsilon_upper=bounds.upper,
            delta=delta,
            sampling=laws(history),
            relation=relation,
            version=accountant.version,
            guarantee=accountant.guarantee,
            kind=accountant.kind,
            unit=unit,
        )
        rows.append(row)
    certificate = Certificate(rows)
    certificate.notes = tuple(notes)
    return certificate


def disagreements(rows: Iterable[CertificateRow]) -> list[str]:
    """A warning for each row that does not meet the guarantee of its group."""
    rows = list(rows)
    warnings: list[str] = []
    for guarantee in rows:
        if guarantee.guarantee:
            warnings += [
                _disagreement(row, guarantee)
                for row in rows
                if _contradicts(row, guarantee)
            ]
    return warnings


def _contradicts(row: CertificateRow, guarantee: CertificateRow) -> bool:
    """Whether bounds on the same epsilon as the guarantee do not meet it."""
    is_same_question = (
        row.group == guarantee.group
        and row.delta == guarantee.delta
        and row.relation == guarantee.relation
    )
    is_other_kind = row.kind in _NO_BOUNDS or row.kind.endswith(OF_ONE_RUN)
    if not is_same_question or row.guarantee or is_other_kind:
        return False
    smaller_upper = min(row.epsilon_upper, guarantee.epsilon_upper)
    larger_lower = max(row.epsilon_lower, guarantee.epsilon_lower)
    return smaller_upper * (1 + _RELATIVE_GAP) < larger_lower


def _disagreement(row: CertificateRow, guarantee: CertificateRow) -> str:
    return (
        f"group {row.group}: {row.accountant} says epsilon is in "
        f"[{row.epsilon_lower:.6g}, {row.epsilon_upper:.6g}], which does not meet "
        f"the guarantee [{guarantee.epsilon_lower:.6g}, "
        f"{guarantee.epsilon_upper:.6g}] of {guarantee.accountant} "
        f"(delta {row.delta:.4g}, {row.law}, {row.relation})"
    )
