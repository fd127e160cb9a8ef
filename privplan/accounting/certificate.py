"""Certificates: the bounds of every accountant on the epsilon of one history, row by row.

A row names everything an epsilon depends on: accountant, delta, sampling law and
neighbouring relation. Exactly one accountant's rows carry the guarantee; the others
stand beside it so that a disagreement can be seen.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

from privplan.accounting.accountant import (
    Accountant,
    checked_relation,
    fast_accountants,
)
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.calibrate import MOST_ROUNDS, calibrate, parameter_faults
from privplan.accounting.closed_form import ClosedFormAccountant, failed_conditions
from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    Unit,
    is_client,
    named_law,
)
from privplan.accounting.tradeoff import TradeOff, profile_of, tradeoff
from privplan.errors import Fault, InputError, UnsupportedError, checked_call
from privplan.laws.sampling_law import known_laws
from privplan.values import LARGEST, LEAST, Named, Shown

# Two intervals are only called apart when the gap is more than rounding in either.
_RELATIVE_GAP = 1e-6
_NO_BOUNDS = ("approximation", "published formula")
OF_ONE_RUN = (
    ", one run"  # ends the kind of a row that bounds the epsilon of one run alone
)


class CertificateRow(BaseModel):
    """Bounds on one group's epsilon by one accountant.

    In JSON an infinite epsilon is the string ``"inf"``, because strict JSON has no
    infinity; reading the row back turns it into a number again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str  # name of the group that the history belongs to
    accountant: str  # name in the catalogue of accountants
    # epsilon is at least this at ``delta``; 0 when nothing is known
    epsilon_lower: float = Field(ge=0)
    epsilon_upper: float = Field(ge=0)  # epsilon is at most this at ``delta``
    delta: float = Field(gt=0, lt=1)  # failure probability, in (0, 1)
    sampling: str  # sampling law, or the laws joined by ``+`` when a history mixes them
    relation: Relation  # neighbouring relation
    version: str  # library and version that computed the row
    guarantee: bool  # whether a plan may rest on ``epsilon_upper``
    # what the bounds are: ``two-sided bound``, ``upper bound``, ``second opinion``,
    # ``approximation`` or ``published formula``, with ``OF_ONE_RUN`` where the guarantee is of the
    # best of several runs and this row is not
    kind: str
    # whom epsilon protects; left out of JSON for ``client``
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
    def is_bound(self) -> bool:
        """Whether epsilon is surely at most ``epsilon_upper``, of one run or of all."""
        return self.kind.removesuffix(OF_ONE_RUN) not in _NO_BOUNDS

    @property
    def law(self) -> str:
        """The sampling law with what it draws, for tables."""
        return named_law(self.sampling, self.unit)

    @field_serializer("epsilon_lower", "epsilon_upper", when_used="json")
    def _strict_json(self, value: float) -> float | str:
        return "inf" if math.isinf(value) else value


class Certificate(Shown, Named[CertificateRow]):
    """Bounds on epsilon, one row per group and accountant; those of a plan or of ``account``.

    >>> plan.certificate.of("strict").epsilon <= 2
    True
    """

    notes: tuple[str, ...] = ()  # why accountants have no row
    warnings: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """Upper bound on epsilon that is guaranteed; the largest of all groups."""
        return max(
            [one.epsilon_upper for one in self if one.guarantee], default=math.inf
        )

    def __getitem__(self, key: Any) -> Any:
        return self.of(key) if isinstance(key, str) else super().__getitem__(key)

    def of(self, group: str) -> Certificate:
        """The rows of a group."""
        return Certificate(row for row in self if row.group == Named(self)[group].group)


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
) -> Certificate:
    """Rows by the accountants that answer; ``notes`` say why the others do not."""
    relation = checked_relation(relation)
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
    found = Certificate(rows)
    found.notes = tuple(notes)
    return found


def disagreements(rows: Iterable[CertificateRow]) -> list[str]:
    """One warning for each row whose interval does not meet the guarantee of its group."""
    rows, warnings = list(rows), []
    for guarantee in (row for row in rows if row.guarantee):
        for row in rows:
            alike = ("group", "delta", "relation")
            same = all(getattr(row, name) == getattr(guarantee, name) for name in alike)
            if (
                not same
                or row.guarantee
                or row.kind in _NO_BOUNDS
                or row.kind.endswith(OF_ONE_RUN)
            ):
                continue
            apart = max(row.epsilon_lower, guarantee.epsilon_lower)
            if (
                min(row.epsilon_upper, guarantee.epsilon_upper) * (1 + _RELATIVE_GAP)
                < apart
            ):
                warnings.append(
                    f"group {row.group}: {row.accountant} says epsilon is in "
                    f"[{row.epsilon_lower:.6g}, {row.epsilon_upper:.6g}], which does not meet "
                    f"the guarantee [{guarantee.epsilon_lower:.6g}, {guarantee.epsilon_upper:.6g}]"
                    f" of {guarantee.accountant} (delta {row.delta:.4g}, {row.law}, "
                    f"{row.relation})"
                )
    return warnings


# --- The T-fold composition of one release: checked, evaluated by accountants, and calibrated. ---
# The domain logic of the commands ``account``, ``calibrate`` and ``tradeoff``. Imports accounting
# modules only; a command imports this module when it runs, since its accountants load SciPy.

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Composition:
    """T equal releases, with the delta and the relation under which epsilon is computed."""

    history: History  # the releases
    delta: float  # failure probability, in (0, 1)
    relation: Relation  # neighbouring relation
    clients: int | None  # size of the population, for warnings; None when unknown

    @property
    def title(self) -> str:
        """Delta, sampling law and relation in words."""
        return f"epsilon at delta {self.delta:.4g}, {laws(self.history)} sampling, {self.relation}"

    def certify(self, accountants: Sequence[str] = ()) -> Certificate:
        """Rows by accountant, the project's own when none is named, with notes and warnings.

        Raises:
            UnsupportedError: when no accountant covers the releases.
        """
        how: dict[str, Any] = {
            "group": "all",
            "delta": self.delta,
            "relation": self.relation,
        }
        rows = certify(
            self.history, accountants=accountants or fast_accountants(), **how
        )
        _log.info(
            "%s: rows of %s", self.title, ", ".join(row.accountant for row in rows)
        )
        if not rows:
            raise UnsupportedError("; ".join(dict.fromkeys(rows.notes)))
        warnings = self._population_warnings() + disagreements(rows)
        if any(row.accountant == ClosedFormAccountant.name for row in rows):
            failed = failed_conditions(self.history, self.delta, self.relation)
            warnings += [f"closed_form is not a bound here: {line}" for line in failed]
        rows.warnings = tuple(warnings)
        return rows

    def tradeoff(self) -> tuple[Certificate, TradeOff]:
        """The guarantee, and upper bounds on every attack."""
        rows = self.certify(["pld"])
        return rows, tradeoff(
            profile_of(self.history, self.relation), self.delta, rows.epsilon
        )

    def _population_warnings(self) -> list[str]:
        """Warnings on delta and the cohort, given the size of the population."""
        clients = self.clients
        if clients is None:
            return []
        warnings = []
        if self.delta >= 1 / clients:
            warnings.append(
                f"delta {self.delta:g} is not below 1/clients = {1 / clients:.4g}: a mechanism "
                "that publishes one client at random would pass; clients^-1.1 is "
                f"{clients**-1.1:.4g}"
            )
        for release, _ in self.history:
            cohort = release.sampling_ratio * clients
            if (
                release.sampling.law.whole_cohorts
                and abs(cohort - round(cohort)) > 1e-6 * cohort
            ):
                warnings.append(
                    f"a cohort of {cohort:.6g} of {clients} clients is not whole; the nearest "
                    f"ratio is {max(round(cohort), 1) / clients:.6g}"
                )
        return warnings


def checked_law(
    name: str, contributions: int = 1, relation: str = "add_remove"
) -> SamplingLaw:
    """The sampling law of that name, for persons with up to so many clients."""
    try:
        law = SamplingLaw(name)
    except (ValueError, TypeError):
        rule = f"must be {'one of ' * (' or ' in (known := known_laws(name)))}{known}"
        raise InputError.one("sampling", rule, name) from None
    most = law.law.most_contributions(checked_relation(relation))
    if not (isinstance(contributions, int) and 1 <= contributions <= most):
        limit = f"a whole number in [1, {most}]" if most > 1 else "1"
        rule = f"must be {limit} under {law.law.phrase} and {relation}"
        raise InputError.one("contributions", rule, contributions)
    return law.of_person(contributions)


@checked_call
def composition(
    noise_multiplier: float | None = None,
    sampling_ratio: float | None = None,
    rounds: int | None = None,
    *,
    history: History | None = None,
    delta: float | None = None,
    sampling: str = "poisson",
    relation: str = "add_remove",
    clients: int | None = None,
    contributions: int = 1,
) -> Composition:
    """The composition of a history, or else of ``rounds`` equal releases, checked."""
    faults = []
    law = checked_law(sampling, contributions, relation).law
    if history is not None:
        if not isinstance(history, History):
            rule = "must be a History such as plan.history(GROUP)"
            raise InputError.one("history", rule, type(history).__name__)
        own: dict[str, object] = {
            "noise_multiplier": noise_multiplier,
            "rounds": rounds,
        }
        own["sampling_ratio"] = sampling_ratio
        own["sampling"] = None if sampling == "poisson" else sampling
        own["contributions"] = None if contributions == 1 else contributions
        rule = "must be left out with a history, which has its own"
        if stated := [
            Fault(name, rule, one) for name, one in own.items() if one is not None
        ]:
            raise InputError(stated)
        noise_multiplier, sampling_ratio, rounds = 1.0, 1.0, 1
    if sampling_ratio is None and law.everyone:
        sampling_ratio = 1.0
    if sampling_ratio is None or not LEAST <= sampling_ratio <= 1:
        faults.append(
            Fault("sampling_ratio", f"must be in [{LEAST:g}, 1]", sampling_ratio)
        )
    elif law.everyone and sampling_ratio != 1:
        faults.append(
            Fault("sampling_ratio", f"must be 1 under {law.phrase}", sampling_ratio)
        )
    if noise_multiplier is None or not LEAST <= float(noise_multiplier) <= LARGEST:
        rule = f"must be in [{LEAST:g}, {LARGEST:g}]"
        faults.append(Fault("noise_multiplier", rule, noise_multiplier))
    if rounds is None or not 1 <= rounds <= MOST_ROUNDS or rounds != int(rounds):
        faults.append(
            Fault("rounds", f"must be a whole number in [1, {MOST_ROUNDS}]", rounds)
        )
    elif rounds % (turn := law.rounds_for(1)) and law.complete_at(1) > 1:
        # part of a turn spends less than a lower bound of whole turns says
        faults.append(
            Fault("rounds", f"must be a multiple of {turn} under {law.phrase}", rounds)
        )
    faults += _population_faults(delta, clients)
    if faults or noise_multiplier is None or rounds is None:
        raise InputError(faults)
    if history is None:
        release = Release(
            noise_multiplier, float(sampling_ratio or 0), SamplingLaw(law.name)
        )
        history = History.repeated(release, law.rounds_of_client(rounds))
    return Composition(
        history, _delta(delta, clients), checked_relation(relation), clients
    )


def calibrated_composition(
    unknown: str, epsilon: float, *, accountant: str, **given: Any
) -> tuple[float, Composition]:
    """The value of one unknown that just keeps the budget, and the composition with it."""
    left_out = dict.fromkeys(
        ("noise_multiplier", "sampling_ratio", "rounds", "delta", "clients")
    )
    given = {**left_out, "sampling": "poisson", "relation": "add_remove", **given}
    one = given.pop("contributions", 1), given["relation"]
    given["sampling"] = sampling = checked_law(given["sampling"], *one)
    law = sampling.law
    if law.everyone and given["sampling_ratio"] is None and unknown != "sampling_ratio":
        given["sampling_ratio"] = 1.0
    faults = parameter_faults(unknown, given)
    if unknown != "delta":
        faults += _population_faults(given["delta"], given["clients"])
    if faults:
        raise InputError(faults)
    if unknown != "delta":
        given["delta"] = _delta(given["delta"], given["clients"])
    own = {
        **given
    }  # as one client sees it: whom a round can draw, and in how many rounds
    if given["rounds"] is not None:
        own["rounds"] = law.rounds_of_client(given["rounds"])
    if unknown == "cohort":
        own["clients"] = math.floor(law.drawable(given["clients"]))
    value = calibrate(unknown, epsilon, accountant=accountant, **own)
    if unknown == "cohort":
        given["sampling_ratio"] = value / own["clients"]
    else:
        if unknown == "rounds":
            value = min(law.rounds_for(round(value)), MOST_ROUNDS)
        given[unknown] = value
    return value, composition(**given)


def _population_faults(delta: float | None, clients: int | None) -> list[Fault]:
    """Faults of delta and the size of the population."""
    faults = []
    if clients is not None and clients < 1:
        faults.append(Fault("clients", "must be 1 or more", clients))
    if delta is None and (clients is None or clients < 2):
        faults.append(
            Fault(
                "delta", "must be given, or 2 or more clients for clients^-1.1", delta
            )
        )
    if delta is not None and not LEAST <= delta < 1:
        faults.append(Fault("delta", f"must be in [{LEAST:g}, 1)", delta))
    return faults


def _delta(delta: float | None, clients: int | None) -> float:
    return delta if delta is not None else float(clients or 0) ** -1.1
