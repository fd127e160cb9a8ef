"""The T-fold composition of one release: checked, evaluated by accountants, and calibrated.

The domain logic of the commands ``account``, ``calibrate`` and ``tradeoff``. Imports accounting
modules only; a command imports this module when it runs, since its accountants load SciPy.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privplan.accounting.accountant import fast_accountants, loadable_accountants
from privplan.accounting.calibrate import calibrate, parameter_faults
from privplan.accounting.certificate import (
    CertificateRow,
    certify_all,
    disagreements,
    laws,
    loose_guarantees,
)
from privplan.accounting.closed_form import ClosedFormAccountant, failed_conditions
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.target import MOST_ROUNDS
from privplan.accounting.tradeoff import TradeOff, profile_of, tradeoff
from privplan.errors import Fault, InputError
from privplan.values import LARGEST, LEAST

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Composition:
    """T equal releases, with the delta and the relation under which epsilon is computed.

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
        return f"epsilon at delta {self.delta:.4g}, {laws(self.history)} sampling, {self.relation}"

    def certify(
        self, accountants: Sequence[str]
    ) -> tuple[list[CertificateRow], list[str], list[str]]:
        """Rows by accountant, a note on each accountant without a row, and warnings."""
        rows, notes = certify_all(
            self.history,
            group="all",
            delta=self.delta,
            relation=self.relation,
            accountants=accountants,
        )
        _log.info("%s: rows of %s", self.title, ", ".join(row.accountant for row in rows))
        warnings = self._population_warnings() + disagreements(rows) + loose_guarantees(rows)
        if any(row.accountant == ClosedFormAccountant.name for row in rows):
            failed = failed_conditions(self.history, self.delta, self.relation)
            warnings += [f"closed_form is not a bound here: {line}" for line in failed]
        return rows, notes, warnings

    def tradeoff(self) -> tuple[CertificateRow, TradeOff, list[str]]:
        """The guarantee's row, upper bounds on every attack, and warnings."""
        rows, _, warnings = self.certify(["pld"])
        profile = profile_of(self.history, self.relation)
        return rows[0], tradeoff(profile, self.delta, rows[0].epsilon_upper), warnings

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
            whole = release.sampling.law.whole_cohorts
            if whole and abs(cohort - round(cohort)) > 1e-6 * cohort:
                warnings.append(
                    f"a cohort of {cohort:.6g} of {clients} clients is not whole; the nearest "
                    f"ratio is {max(round(cohort), 1) / clients:.6g}"
                )
        return warnings


def composition(
    noise_multiplier: float,
    sampling_ratio: float | None,
    rounds: int,
    *,
    delta: float | None,
    sampling: str,
    relation: str,
    clients: int | None,
) -> Composition:
    """The composition of ``rounds`` equal releases, checked.

    Args:
        noise_multiplier: noise standard deviation over the clipping norm.
        sampling_ratio: chance of a client to take part in a round; 1 by default under ``full``.
        rounds: number of releases.
        delta: failure probability, in (0, 1); clients^-1.1 by default.
        sampling: sampling law.
        relation: neighbouring relation.
        clients: size of the population.

    Raises:
        InputError: when values are missing or out of range, with every fault.
    """
    faults = []
    law = SamplingLaw(sampling).law
    if law.turns > 1:
        rule = f"must be poisson, with 1 / {law.turns} of the rounds"
        faults.append(Fault("sampling", rule, sampling))
    if sampling_ratio is None and law.everyone:
        sampling_ratio = 1.0
    if sampling_ratio is None or not LEAST <= sampling_ratio <= 1:
        faults.append(Fault("sampling_ratio", f"must be in [{LEAST:g}, 1]", sampling_ratio))
    elif law.everyone and sampling_ratio != 1:
        faults.append(Fault("sampling_ratio", f"must be 1 under {law.phrase}", sampling_ratio))
    if not LEAST <= noise_multiplier <= LARGEST:
        rule = f"must be in [{LEAST:g}, {LARGEST:g}]"
        faults.append(Fault("noise_multiplier", rule, noise_multiplier))
    if not 1 <= rounds <= MOST_ROUNDS:
        faults.append(Fault("rounds", f"must be in [1, {MOST_ROUNDS}]", rounds))
    faults += _population_faults(delta, clients)
    if faults:
        raise InputError(faults)
    release = Release(noise_multiplier, float(sampling_ratio or 0), SamplingLaw(sampling))
    history = History.repeated(release, rounds)
    return Composition(history, _delta(delta, clients), Relation(relation), clients)


def calibrated_composition(
    unknown: str, epsilon: float, *, accountant: str, **given: Any
) -> tuple[float, Composition]:
    """The value of one unknown that just keeps the budget, and the composition with it.

    Args:
        unknown: one of ``calibrate.UNKNOWNS``.
        epsilon: budget.
        accountant: name of the accountant whose upper bound keeps the budget.
        given: arguments of ``composition``, None for the unknown.

    Raises:
        InputError, InfeasibleError, UnsupportedError: as ``calibrate.calibrate``.
    """
    law = SamplingLaw(given["sampling"]).law
    if law.turns > 1:
        rule = f"must be poisson, with 1 / {law.turns} of the rounds"
        raise InputError.one("sampling", rule, given["sampling"])
    everyone = law.everyone
    if everyone and given["sampling_ratio"] is None and unknown != "sampling_ratio":
        given["sampling_ratio"] = 1.0
    faults = parameter_faults(unknown, given)
    if unknown != "delta":
        faults += _population_faults(given["delta"], given["clients"])
    if faults:
        raise InputError(faults)
    if unknown != "delta":
        given["delta"] = _delta(given["delta"], given["clients"])
    value = calibrate(unknown, epsilon, accountant=accountant, **given)
    if unknown == "cohort":
        given["sampling_ratio"] = value / given["clients"]
    else:
        given[unknown] = value
    return value, composition(**given)


def chosen_accountants(names: Sequence[str], external: bool) -> list[str]:
    """The names given; without any, the internal accountants, or all of them with ``external``."""
    return list(names) or (loadable_accountants() if external else fast_accountants())


def _population_faults(delta: float | None, clients: int | None) -> list[Fault]:
    """Faults of delta and the size of the population."""
    faults = []
    if clients is not None and clients < 1:
        faults.append(Fault("clients", "must be 1 or more", clients))
    if delta is None and (clients is None or clients < 2):
        rule = "must be given, or 2 or more clients for clients^-1.1"
        faults.append(Fault("delta", rule, delta))
    if delta is not None and not LEAST <= delta < 1:
        faults.append(Fault("delta", f"must be in [{LEAST:g}, 1)", delta))
    return faults


def _delta(delta: float | None, clients: int | None) -> float:
    return delta if delta is not None else float(clients or 0) ** -1.1
