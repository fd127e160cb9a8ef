"""The T-fold composition of one release: checked, evaluated by accountants, calibrated.

The domain logic of the commands ``account``, ``calibrate`` and ``tradeoff``. Imports
accounting modules only; a command imports this module when it runs, since its
accountants load SciPy.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privplan.accounting.accountant import (
    checked_relation,
    delta_warnings,
    fast_accountants,
)
from privplan.accounting.calibrate import MOST_ROUNDS, calibrate, parameter_faults
from privplan.accounting.certificate import (
    NO_BOUND_HERE,
    Certificate,
    certify,
    disagreements,
    laws,
)
from privplan.accounting.closed_form import ClosedFormAccountant, failed_conditions
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.tradeoff import TradeOff, profile_of, tradeoff
from privplan.errors import Fault, InputError, UnsupportedError
from privplan.guidance import checked_call
from privplan.laws.law import Law
from privplan.laws.sampling_law import rule_of_laws
from privplan.values import LARGEST, SMALLEST

# Relative distance of a cohort from a whole number that rounding of a ratio leaves.
_WHOLE_COHORT = 1e-6

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Composition:
    """Releases, with the delta and the relation under which epsilon is computed.

    Attributes:
        history: the releases.
        delta: failure probability, in (0, 1).
        relation: neighbouring relation.
        clients: size of the population, for warnings; None when unknown.
    """

    history: History
    delta: float
    relation: Relation
    clients: int | None

    @property
    def title(self) -> str:
        """Delta, sampling law and relation in words."""
        cell = f"{laws(self.history)} sampling, {self.relation}"
        return f"epsilon at delta {self.delta:.4g}, {cell}"

    def certify(self, accountants: Sequence[str] = ()) -> Certificate:
        """Rows by accountant, with notes and warnings.

        Args:
            accountants: their names; the project's own when none is named.

        Raises:
            UnsupportedError: when no accountant covers the releases.
        """
        rows = certify(
            self.history,
            group="all",
            delta=self.delta,
            relation=self.relation,
            accountants=accountants or fast_accountants(),
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
            if failed:
                rows = _without_bound(rows)
        if not any(row.is_proven for row in rows):
            warnings.append(
                "no accountant here has a proven bound, so .epsilon is infinite; pld has one"
            )
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
        warnings = delta_warnings(self.delta, clients)
        if clients is None:
            return warnings
        for release, _ in self.history:
            if not release.sampling.law.whole_cohorts:
                continue
            cohort = release.sampling_ratio * clients
            if abs(cohort - round(cohort)) > _WHOLE_COHORT * cohort:
                warnings.append(
                    f"a cohort of {cohort:.6g} of {clients} clients is not whole; the "
                    f"nearest ratio is {max(round(cohort), 1) / clients:.6g}"
                )
        return warnings


def _without_bound(rows: Certificate) -> Certificate:
    """Rows in which that of the closed form says that it bounds nothing."""
    marked = Certificate(
        row.model_copy(update={"kind": NO_BOUND_HERE})
        if row.accountant == ClosedFormAccountant.name
        else row
        for row in rows
    )
    marked.notes = rows.notes
    return marked


def checked_law(
    name: str, contributions: int = 1, relation: str = "add_remove"
) -> SamplingLaw:
    """The sampling law of that name, for persons with up to so many clients."""
    try:
        law = SamplingLaw(name)
    except (ValueError, TypeError):
        raise InputError.one("sampling", rule_of_laws(name), name) from None
    largest = law.law.most_contributions(checked_relation(relation))
    if not (isinstance(contributions, int) and 1 <= contributions <= largest):
        if largest > 1:
            limit = f"a whole number in [1, {largest}]"
        else:
            limit = "1"
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
    """The composition of a history, or else of ``rounds`` equal releases, checked.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm.
        sampling_ratio: chance of a client to take part in a round.
        rounds: number of equal releases, as the server counts them.
        history: releases, in place of the three numbers.
        delta: failure probability; clients^-1.1 when left out.
        sampling: name of the law of the rounds.
        relation: which data sets are neighbours.
        clients: size of the population.
        contributions: most clients that one person has.

    Raises:
        InputError: naming all numbers that are missing or out of range.
    """
    law = checked_law(sampling, contributions, relation).law
    faults: list[Fault] = []
    if history is not None:
        _check_history(
            history,
            {
                "noise_multiplier": noise_multiplier,
                "rounds": rounds,
                "sampling_ratio": sampling_ratio,
                "sampling": None if sampling == "poisson" else sampling,
                "contributions": None if contributions == 1 else contributions,
            },
        )
    else:
        if sampling_ratio is None and law.everyone:
            sampling_ratio = 1.0
        faults += _release_faults(law, noise_multiplier, sampling_ratio, rounds)
    faults += _population_faults(delta, clients)
    if faults:
        raise InputError(faults)
    if history is None:
        release = Release(
            noise_multiplier or 0.0, float(sampling_ratio or 0), SamplingLaw(law.name)
        )
        history = History.repeated(release, law.rounds_of_client(rounds or 0))
    return Composition(
        history, _delta(delta, clients), checked_relation(relation), clients
    )


def _check_history(history: object, stated_numbers: dict[str, object]) -> None:
    """Raise where releases are no history, or have numbers beside them."""
    if not isinstance(history, History):
        rule = "must be a History such as plan.history(GROUP)"
        raise InputError.one("history", rule, type(history).__name__)
    rule = "must be left out with a history, which has its own"
    faults = [
        Fault(name, rule, value)
        for name, value in stated_numbers.items()
        if value is not None
    ]
    if faults:
        raise InputError(faults)


def _release_faults(
    law: Law, noise_multiplier: Any, sampling_ratio: Any, rounds: Any
) -> list[Fault]:
    """Faults of the numbers of equal releases."""
    faults = []
    if sampling_ratio is None or not SMALLEST <= sampling_ratio <= 1:
        rule = f"must be in [{SMALLEST:g}, 1], or sampling full"
        faults.append(Fault("sampling_ratio", rule, sampling_ratio))
    elif law.everyone and sampling_ratio != 1:
        rule = f"must be 1 under {law.phrase}"
        faults.append(Fault("sampling_ratio", rule, sampling_ratio))

    # Compared before it is converted: a whole number may be no float.
    if noise_multiplier is None or not SMALLEST <= noise_multiplier <= LARGEST:
        rule = f"must be in [{SMALLEST:g}, {LARGEST:g}]"
        faults.append(Fault("noise_multiplier", rule, noise_multiplier))

    turn = law.rounds_for(1)
    if rounds is None or not 1 <= rounds <= MOST_ROUNDS or rounds != int(rounds):
        rule = f"must be a whole number in [1, {MOST_ROUNDS}]"
        faults.append(Fault("rounds", rule, rounds))
    elif rounds % turn and law.complete_at(1) > 1:
        # Part of a turn spends less than a lower bound of whole turns says.
        rule = f"must be a multiple of {turn} under {law.phrase}"
        faults.append(Fault("rounds", rule, rounds))
    return faults


def calibrated_composition(
    unknown: str, epsilon: float, *, accountant: str, **parameters: Any
) -> tuple[float, Composition]:
    """The value of one unknown that just keeps the budget, and the composition with it.

    Args:
        unknown: one of ``calibrate.UNKNOWNS``.
        epsilon: the budget over all rounds.
        accountant: whose upper bound keeps it.
        parameters: all others, as for ``composition``.
    """
    numbers: dict[str, Any] = {
        "noise_multiplier": None,
        "sampling_ratio": None,
        "rounds": None,
        "delta": None,
        "clients": None,
        "sampling": "poisson",
        "relation": "add_remove",
    }
    numbers |= parameters
    contributions = numbers.pop("contributions", 1)
    sampling = checked_law(numbers["sampling"], contributions, numbers["relation"])
    numbers["sampling"] = sampling
    law = sampling.law
    has_no_ratio = numbers["sampling_ratio"] is None and unknown != "sampling_ratio"
    if law.everyone and has_no_ratio:
        numbers["sampling_ratio"] = 1.0
    faults = parameter_faults(unknown, numbers)
    if unknown != "delta":
        faults += _population_faults(numbers["delta"], numbers["clients"])
    if faults:
        raise InputError(faults)
    if unknown != "delta":
        numbers["delta"] = _delta(numbers["delta"], numbers["clients"])

    # As one client sees it: whom a round can draw, and in how many rounds.
    of_client = dict(numbers)
    if numbers["rounds"] is not None:
        of_client["rounds"] = law.rounds_of_client(numbers["rounds"])
    if unknown == "cohort":
        of_client["clients"] = math.floor(law.drawable(numbers["clients"]))
    value = calibrate(unknown, epsilon, accountant=accountant, **of_client)
    if unknown == "cohort":
        numbers["sampling_ratio"] = value / of_client["clients"]
    else:
        if unknown == "rounds":
            value = min(law.rounds_for(round(value)), MOST_ROUNDS)
        numbers[unknown] = value
    return value, composition(**numbers)


def _population_faults(delta: float | None, clients: int | None) -> list[Fault]:
    """Faults of delta and the size of the population."""
    faults = []
    if clients is not None and clients < 1:
        faults.append(Fault("clients", "must be 1 or more", clients))
    if clients is not None and clients > LARGEST:
        faults.append(Fault("clients", f"must be at most {LARGEST:g}", clients))
    if delta is None and (clients is None or clients < 2):
        rule = "must be given, or 2 or more clients for clients^-1.1"
        faults.append(Fault("delta", rule, delta))
    if delta is not None and not SMALLEST <= delta < 1:
        faults.append(Fault("delta", f"must be in [{SMALLEST:g}, 1)", delta))
    return faults


def _delta(delta: float | None, clients: int | None) -> float:
    return float(clients or 0) ** -1.1 if delta is None else delta
