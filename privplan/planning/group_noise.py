"""Noise multipliers of groups: calibrated to each group's budget, and certified."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import Accountant
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.calibrate import noise_multiplier, noise_multiplier_by_bisection
from privplan.accounting.certificate import CertificateRow, certify
from privplan.accounting.release import History, Release
from privplan.accounting.target import LEAST_RATIO, NOISE_RANGE, least_certified
from privplan.errors import InfeasibleError, InputError
from privplan.planning.budget_nodes import budget_of, covered_ratio
from privplan.planning.problem import Problem
from privplan.planning.sweeping import guarantee

Floats = NDArray[np.float64]

GUARANTEE = "pld"
FAST_ACCOUNTANTS = ("pld", "rdp")
CERTIFICATE_ACCOUNTANTS = ("pld", "rdp", "prv")
"""With prv-accountant, which is slow to import."""


@dataclass(frozen=True)
class CertifiedNoise:
    """Noise multipliers that keep every budget according to the guarantee's accountant.

    Attributes:
        noise: sigma_m, shape (groups,).
        certificate: rows of every accountant, in order of the groups.
        warnings: one for each group whose calibrated noise multiplier was raised.
    """

    noise: Floats
    certificate: tuple[CertificateRow, ...]
    warnings: tuple[str, ...]


def calibrated(problem: Problem, ratios: Floats, accountant: str) -> Floats:
    """Smallest noise multipliers that keep the budgets, shape (groups,).

    Args:
        problem: budgets, rounds, sampling law and relation.
        ratios: sampling ratios q_m, shape (groups,).
        accountant: name of the accountant that calibrates.

    Raises:
        InfeasibleError: naming the group whose budget no noise in the range can meet.
        UnsupportedError: when the accountant does not cover the law and relation.
    """
    return np.array(
        [group_noise(problem, group, ratio, accountant) for group, ratio in enumerate(ratios)]
    )


def group_noise(
    problem: Problem,
    group: int,
    ratio: float,
    accountant: str | Accountant,
    rtol: float = 1e-4,
    near: float | None = None,
) -> float:
    """Smallest noise multiplier that keeps the budget of one group, rounded up to ten digits.

    Or the group's fixed noise multiplier, where it has one.

    Args:
        problem: budgets, rounds, sampling law and relation.
        group: index of the group.
        ratio: its sampling ratio.
        accountant: the accountant that calibrates.
        rtol: relative precision.
        near: noise multiplier within some percent of the result, where it is known.

    Raises:
        InfeasibleError: naming the group and the smallest feasible epsilon.
        UnsupportedError: when the accountant does not cover the law and relation.
    """
    if problem.fixed_noise and (fixed := problem.fixed_noise[group]) is not None:
        return fixed
    name, ratio = problem.names[group], float(ratio)
    budget = problem.epsilons[group], problem.deltas[group]
    _check_ratio(problem, group, ratio)
    if accountant == GUARANTEE and ratio <= covered_ratio(budget[1], problem.rounds):
        least = _least_certified(problem, group, ratio, accountant)
        if least is not None:
            return least
    try:
        if problem.calibration == "published" and accountant != GUARANTEE:
            noise = noise_multiplier_by_bisection(
                *budget, sampling_ratio=ratio, rounds=problem.rounds, accountant=accountant
            )
        else:
            noise = noise_multiplier(
                *budget,
                sampling_ratio=ratio,
                rounds=problem.rounds,
                sampling=problem.sampling,
                relation=problem.relation,
                accountant=accountant,
                rtol=rtol,
                near=near,
            )
    except InfeasibleError as error:
        nearest = _smallest_epsilon(problem, group, ratio, accountant)
        raise InfeasibleError(f"groups.{name}.epsilon: {error}; {nearest}") from None
    except InputError as error:
        raise InfeasibleError(f"groups.{name}: {error}") from None
    return rounded_up(noise)


def _least_certified(
    problem: Problem, group: int, ratio: float, accountant: str | Accountant
) -> float | None:
    """The least noise multiplier that can be certified; None where it does not keep the budget.

    Where delta covers the chance of ever taking part, any noise keeps the budget.
    """
    budget = budget_of(problem, group)
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    noise = rounded_up(least_certified(budget.sampling, budget.relation))
    spent = chosen.epsilon(history_of(problem, ratio, noise), budget.delta, budget.relation).upper
    return noise if spent <= budget.epsilon else None


def _check_ratio(problem: Problem, group: int, ratio: float) -> None:
    """Raise InfeasibleError when budgets differ so much that a group would hardly take part."""
    if ratio < LEAST_RATIO and len(problem.names) > 1:
        least, most = min(problem.epsilons), max(problem.epsilons)
        raise InfeasibleError(
            f"groups.{problem.names[group]}.epsilon: {problem.epsilons[group]:g} among budgets "
            f"from {least:g} to {most:g} leaves the group a sampling ratio of {ratio:.3g}, below "
            f"the least of {LEAST_RATIO:g}; bring the budgets closer together"
        )


def _smallest_epsilon(
    problem: Problem, group: int, ratio: float, accountant: str | Accountant
) -> str:
    """The smallest feasible epsilon of a group in words: that of the largest noise multiplier."""
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    history = history_of(problem, ratio, NOISE_RANGE[1])
    spent = chosen.epsilon(history, problem.deltas[group], problem.relation).upper
    return f"the nearest feasible epsilon is {math.nextafter(spent, math.inf):.4g}"


def rounded_up(noise: float) -> float:
    """The noise multiplier rounded up to ten significant digits.

    A ledger records standard deviations. Ten digits survive the product with the clipping norm and
    the division by it exactly, so that the realised epsilon equals the planned one bit for bit.
    """
    unit = 10.0 ** (math.floor(math.log10(noise)) - 9)
    return float(f"{math.ceil(noise / unit) * unit:.10g}")


def certify_noise(
    problem: Problem,
    ratios: Floats,
    noise: Floats,
    accountant: str,
    certificate_accountants: tuple[str, ...] = CERTIFICATE_ACCOUNTANTS,
) -> CertifiedNoise:
    """Noise multipliers with their certificate, raised where the guarantee is overspent.

    Args:
        problem: budgets, rounds, sampling law and relation.
        ratios: sampling ratios q_m, shape (groups,).
        noise: sigma_m as calibrated, shape (groups,).
        accountant: the accountant that calibrated them.
        certificate_accountants: accountants of the certificate; the guarantee's is added.

    Raises:
        InfeasibleError: when a budget is overspent by the raised noise multiplier.
    """
    noise = np.array(noise, dtype=float)
    rows: list[CertificateRow] = []
    warnings: list[str] = []
    for group in range(len(noise)):
        certified = _certified(problem, group, ratios[group], noise[group], certificate_accountants)
        spent = _guaranteed_epsilon(certified)
        if spent > problem.epsilons[group]:
            raised = group_noise(problem, group, ratios[group], GUARANTEE)
            warnings.append(
                f"groups.{problem.names[group]}: the noise of accountant {accountant} "
                f"({noise[group]:.5g}) would spend epsilon {spent:.6g} of "
                f"{problem.epsilons[group]:g} by {GUARANTEE} (delta "
                f"{problem.deltas[group]:.3g}, {problem.law}, {problem.relation}); "
                f"raised to {max(raised, noise[group]):.5g} by {GUARANTEE}"
            )
            noise[group] = max(raised, noise[group])
            certified = _certified(
                problem, group, ratios[group], noise[group], certificate_accountants
            )
            _check_budget(problem, group, certified)
        rows += certified
    return CertifiedNoise(noise, tuple(rows), tuple(warnings))


def single_group(problem: Problem, group: int) -> Problem:
    """The problem of one group, without what its calibration does not depend on.

    Groups with the same name and budget are equal as problems, and share their cached calibrations.
    """
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
    )


def history_of(problem: Problem, ratio: float, noise: float) -> History:
    """Releases in which a client of a group takes part."""
    return History.repeated(Release(float(noise), float(ratio), problem.sampling), problem.rounds)


def _certified(
    problem: Problem, group: int, ratio: float, noise: float, accountants: tuple[str, ...]
) -> list[CertificateRow]:
    return certify(
        history_of(problem, ratio, noise),
        group=problem.names[group],
        delta=problem.deltas[group],
        relation=problem.relation,
        accountants=(
            guarantee(problem.epsilons[group]),
            *(name for name in accountants if name != GUARANTEE),
        ),
        unit=problem.unit,
    )


def _guaranteed_epsilon(rows: list[CertificateRow]) -> float:
    return max((row.epsilon_upper for row in rows if row.guarantee), default=float("inf"))


def _check_budget(problem: Problem, group: int, rows: list[CertificateRow]) -> None:
    spent = _guaranteed_epsilon(rows)
    if spent > problem.epsilons[group]:
        raise InfeasibleError(
            f"groups.{problem.names[group]}.epsilon: {problem.epsilons[group]:g} is overspent: "
            f"{GUARANTEE} certifies only {spent:.6g} (delta {problem.deltas[group]:.3g}, "
            f"{problem.law}, {problem.relation})"
        )
