"""Certificates: the bounds of every accountant on the epsilon of one history, row by row.

A row names everything an epsilon depends on: accountant, delta, sampling law and
neighbouring relation. Exactly one accountant's rows carry the guarantee; the others
stand beside it so that a disagreement can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

from privplan.accounting.accountant import Accountant
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.release import History, Relation, Unit, is_client, named_law
from privplan.errors import UnsupportedError

# Two intervals are only called apart when the gap is more than rounding in either.
_RELATIVE_GAP = 1e-6
_LOOSE = 0.01
"""Relative distance of two upper bounds from which on the larger one is called looser."""
_NO_BOUNDS = ("approximation", "published formula")
OF_ONE_RUN = ", one run"
"""End of a row's kind that bounds another epsilon than the guarantee: that of a single run."""


class CertificateRow(BaseModel):
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
        kind: what the bounds are: ``two-sided bound``, ``upper bound``,
            ``second opinion``, ``approximation`` or ``published formula``, with ``OF_ONE_RUN``
            where the guarantee is of the best of several runs and this row is not.
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
                f"epsilon_lower: must be at most epsilon_upper ({self.epsilon_upper!r}), "
                f"not {self.epsilon_lower!r}"
            )
        return self

    @property
    def law(self) -> str:
        """The sampling law with what it draws, for tables."""
        return named_law(self.sampling, self.unit)

    @field_serializer("epsilon_lower", "epsilon_upper", when_used="json")
    def _strict_json(self, value: float) -> float | str:
        return "inf" if math.isinf(value) else value


def laws(history: History) -> str:
    """The sampling laws of a history, joined by ``+``; ``none`` when nothing was released."""
    return "+".join(sorted({str(release.sampling) for release, _ in history})) or "none"


def certify(
    history: History,
    *,
    group: str,
    delta: float,
    relation: Relation | str,
    accountants: Sequence[str | Accountant] = ("pld", "rdp", "prv"),
    unit: Unit = "client",
) -> list[CertificateRow]:
    """One row for each accountant that answers for the history; see ``certify_all``."""
    rows, _ = certify_all(
        history, group=group, delta=delta, relation=relation, accountants=accountants, unit=unit
    )
    return rows


def certify_all(
    history: History,
    *,
    group: str,
    delta: float,
    relation: Relation | str,
    accountants: Sequence[str | Accountant],
    unit: Unit = "client",
) -> tuple[list[CertificateRow], list[str]]:
    """Rows by the accountants that answer, and a line each on why the others do not.

    Args:
        history: what was released about the group.
        group: name to put on the rows.
        delta: failure probability, in (0, 1).
        relation: neighbouring relation.
        accountants: names from the catalogue, or accountants.
        unit: whom the history is of.

    Returns:
        Rows in the order of ``accountants``, and notes.

    Raises:
        InputError: for an unknown name, or delta out of range.
    """
    relation = Relation(relation)
    rows, notes = [], []
    for chosen in accountants:
        one = by_name(chosen) if isinstance(chosen, str) else chosen
        try:
            bounds = one.epsilon(history, delta, relation)
        except UnsupportedError as error:
            notes.append(str(error))
            continue
        row = CertificateRow(
            group=group,
            accountant=one.name,
            epsilon_lower=bounds.lower,
            epsilon_upper=bounds.upper,
            delta=delta,
            sampling=laws(history),
            relation=relation,
            version=one.version,
            guarantee=one.guarantee,
            kind=one.kind,
            unit=unit,
        )
        rows.append(row)
    return rows, notes


def disagreements(rows: Iterable[CertificateRow]) -> list[str]:
    """One warning for each row that contradicts the guarantee of its group.

    Bounds contradict each other when their intervals do not meet. Approximations
    claim no bound and never do.
    """
    rows = list(rows)
    warnings = []
    for guarantee in (row for row in rows if row.guarantee):
        for row in rows:
            same = (row.group, row.delta, row.relation) == (
                guarantee.group,
                guarantee.delta,
                guarantee.relation,
            )
            if not same or row.guarantee or row.kind in _NO_BOUNDS or row.kind.endswith(OF_ONE_RUN):
                continue
            if _apart(row, guarantee):
                warnings.append(
                    f"group {row.group}: {row.accountant} says epsilon is in "
                    f"[{row.epsilon_lower:.6g}, {row.epsilon_upper:.6g}], which does not meet "
                    f"the guarantee [{guarantee.epsilon_lower:.6g}, {guarantee.epsilon_upper:.6g}]"
                    f" of {guarantee.accountant} (delta {row.delta:.4g}, {row.law}, "
                    f"{row.relation})"
                )
    return warnings


def loose_guarantees(rows: Iterable[CertificateRow]) -> list[str]:
    """One warning for each guarantee that an upper bound of another accountant lies well below.

    Both bounds hold. Over very many releases rounding makes the guarantee the looser one.
    """
    rows = list(rows)
    return [
        f"the guarantee {guarantee.epsilon_upper:.6g} of {guarantee.accountant} is looser here "
        f"than the upper bound {row.epsilon_upper:.6g} of {row.accountant}, which holds as well"
        for guarantee in (row for row in rows if row.guarantee)
        for row in rows
        if row.kind == "upper bound"
        and not row.guarantee
        and row.epsilon_upper * (1 + _LOOSE) < guarantee.epsilon_upper
    ]


def _apart(row: CertificateRow, other: CertificateRow) -> bool:
    slack = 1 + _RELATIVE_GAP
    return (
        row.epsilon_upper * slack < other.epsilon_lower
        or other.epsilon_upper * slack < row.epsilon_lower
    )
