"""The certificate of noise multipliers, which raises those that overspend a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import at_most
from privplan.accounting.certificate import CertificateRow, certify
from privplan.accounting.release import named_law
from privplan.errors import InfeasibleError
from privplan.planning.budget import budget_of, history_of
from privplan.planning.noise import GUARANTEE, least_noise
from privplan.planning.problem import Problem

Floats = NDArray[np.float64]

FAST_ACCOUNTANTS = ("pld", "rdp")
# With prv-accountant, which is slow to import.
CERTIFICATE_ACCOUNTANTS = ("pld", "rdp", "prv")


@dataclass(frozen=True)
class CertifiedNoise:
    """Noise multipliers that keep every budget by the guarantee's accountant.

    Attributes:
        noise: sigma_m, shape (groups,).
        certificate: rows of every accountant, in the order of the groups.
        warnings: one for each group whose calibrated noise multiplier was raised.
    """

    noise: Floats
    certificate: tuple[CertificateRow, ...]
    warnings: tuple[str, ...]


def certify_noise(
    problem: Problem,
    ratios: Floats,
    noise: Floats,
    accountant: str,
    certificate_accountants: tuple[str, ...] = CERTIFICATE_ACCOUNTANTS,
) -> CertifiedNoise:
    """Noise multipliers with their certificate, raised where they overspend.

    Args:
        problem: the planning problem.
        ratios: sampling ratios, shape (groups,).
        noise: noise multipliers, shape (groups,).
        accountant: name of the accountant that they were calibrated by.
        certificate_accountants: names of the accountants with rows in the certificate.

    Raises:
        InfeasibleError: where no noise multiplier keeps a budget by the guarantee.
    """
    noise = np.array(noise, dtype=float)
    certificate: list[CertificateRow] = []
    warnings: list[str] = []
    for group, name in enumerate(problem.names):
        epsilon = problem.epsilons[group]
        ratio = ratios[group]
        law = named_law(budget_of(problem, group).sampling, problem.unit)
        cell = f"(delta {problem.deltas[group]:.3g}, {law}, {problem.relation})"
        rows = _rows(problem, group, ratio, noise[group], certificate_accountants)
        spent = _guaranteed_epsilon(rows)
        if spent > epsilon:
            raised = max(least_noise(problem, group, ratio), noise[group])
            warnings.append(
                f"groups.{name}: the noise of accountant {accountant} "
                f"({noise[group]:.5g}) would spend epsilon {at_most(spent, 6)} of "
                f"{epsilon:g} by {GUARANTEE} {cell}; raised to {raised:.5g} by {GUARANTEE}"
            )
            noise[group] = raised
            rows = _rows(problem, group, ratio, raised, certificate_accountants)
            spent = _guaranteed_epsilon(rows)
            if spent > epsilon:
                raise InfeasibleError(
                    f"groups.{name}.epsilon: {epsilon:g} is overspent: {GUARANTEE} "
                    f"certifies only {at_most(spent, 6)} {cell}"
                )
        certificate += rows
    return CertifiedNoise(noise, tuple(certificate), tuple(warnings))


def _rows(
    problem: Problem, group: int, ratio: float, noise: float, names: tuple[str, ...]
) -> list[CertificateRow]:
    """The rows of a group, with that of the guarantee in any case."""
    second_opinions = [name for name in names if name != GUARANTEE]
    rows = certify(
        history_of(problem, group, ratio, noise),
        group=problem.names[group],
        delta=problem.deltas[group],
        relation=problem.relation,
        accountants=(GUARANTEE, *second_opinions),
        unit=problem.unit,
    )
    return list(rows)


def _guaranteed_epsilon(rows: list[CertificateRow]) -> float:
    """The upper bound on epsilon that rows guarantee; infinite without such a row."""
    bounds = [row.epsilon_upper for row in rows if row.guarantee]
    return max(bounds, default=math.inf)


def single_group(problem: Problem, group: int) -> Problem:
    """The problem of one group, without what its calibration does not depend on."""
    return replace(
        problem,
        names=(problem.names[group],),
        clients=(1,),
        epsilons=(problem.epsilons[group],),
        deltas=(problem.deltas[group],),
        cohort=1.0,
        clipping_norm=1.0,
        dimension=1,
        fixed_noise=(),
        laws=problem.laws[group : group + 1],
        rounds=problem.rounds_of(group),
        rounds_by_group=(),
    )
