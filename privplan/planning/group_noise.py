"""Noise multipliers: the least noise that keeps each group's budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import Accountant
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.calibrate import (
    LEAST_RATIO,
    NOISE_RANGE,
    noise_multiplier,
    noise_multiplier_by_bisection,
)
from privplan.accounting.certificate import CertificateRow, certify
from privplan.accounting.release import History, Release
from privplan.errors import InfeasibleError, InputError, TooLittleNoiseError
from privplan.planning.problem import Problem

Floats = NDArray[np.float64]

GUARANTEE = "pld"
QUICK = ("pld", "rdp")
OPINIONS = ("pld", "rdp", "prv")
"""With prv-accountant, which takes longer to load than a plan to solve."""


@dataclass(frozen=True)
class CertifiedNoise:
    """Noise multipliers that keep every budget by the guarantee.

    Attributes:
        noise: sigma_m, shape (groups,).
        certificate: what every accountant says, group by group.
        warnings: where the chosen accountant's noise was not enough.
    """

    noise: Floats
    certificate: tuple[CertificateRow, ...]
    warnings: tuple[str, ...]


def calibrated(problem: Problem, ratios: Floats, accountant: str) -> Floats:
    """The least noise multipliers that keep the budgets, by one accountant.

    Args:
        problem: what is given.
        ratios: sampling ratios q_m, shape (groups,).
        accountant: its name.

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
    """The least noise multiplier of one group, to ``rtol``; see ``calibrated``.

    Args:
        problem: what is given.
        group: which group.
        ratio: its sampling ratio.
        accountant: the accountant that calibrates.
        rtol: relative precision.
        near: where to look first, when the answer is known within some percent.
    """
    name, ratio = problem.names[group], float(ratio)
    budget = problem.epsilons[group], problem.deltas[group]
    _must_take_part(problem, group, ratio)
    try:
        if problem.calibration == "published" and accountant != GUARANTEE:
            found = noise_multiplier_by_bisection(
                *budget, sampling_ratio=ratio, rounds=problem.rounds, accountant=accountant
            )
        else:
            found = noise_multiplier(
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
        nearest = _least_epsilon(problem, group, ratio, accountant)
        raise InfeasibleError(f"groups.{name}.epsilon: {error}; {nearest}") from None
    except TooLittleNoiseError as error:
        rule = f"{budget[0]:g} asks for less noise than can be certified"
        raise InfeasibleError(f"groups.{name}.epsilon: {rule}; lower it; {error}") from None
    except InputError as error:
        raise InfeasibleError(f"groups.{name}: {error}") from None
    return rounded_up(found)


def _must_take_part(problem: Problem, group: int, ratio: float) -> None:
    """Refuse budgets so far apart that a group would hardly ever take part."""
    if ratio < LEAST_RATIO and len(problem.names) > 1:
        least, most = min(problem.epsilons), max(problem.epsilons)
        raise InfeasibleError(
            f"groups.{problem.names[group]}.epsilon: {problem.epsilons[group]:g} among budgets "
            f"from {least:g} to {most:g} leaves the group a sampling ratio of {ratio:.3g}, below "
            f"the least of {LEAST_RATIO:g}; bring the budgets closer together"
        )


def _least_epsilon(problem: Problem, group: int, ratio: float, accountant: str | Accountant) -> str:
    """The nearest feasible epsilon of a group: what the most noise in the range spends."""
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    history = history_of(problem, ratio, NOISE_RANGE[1])
    spent = chosen.epsilon(history, problem.deltas[group], problem.relation).upper
    return f"the nearest feasible epsilon is {math.nextafter(spent, math.inf):.4g}"


def rounded_up(noise: float) -> float:
    """The next number of ten digits, which survives products and quotients exactly.

    A ledger records standard deviations; its reader divides by the clip bound and finds this
    very multiplier again, so that the realised epsilon is the planned one to the last bit.
    """
    unit = 10.0 ** (math.floor(math.log10(noise)) - 9)
    return float(f"{math.ceil(noise / unit) * unit:.10g}")


def certify_noise(
    problem: Problem,
    ratios: Floats,
    noise: Floats,
    accountant: str,
    opinions: tuple[str, ...] = OPINIONS,
) -> CertifiedNoise:
    """Certify the noise; where the guarantee finds a budget overspent, raise the noise.

    Args:
        problem: what is given.
        ratios: sampling ratios q_m, shape (groups,).
        noise: sigma_m as calibrated, shape (groups,).
        accountant: the accountant that calibrated it.
        opinions: the accountants of the certificate; the guarantee is always one of them.

    Raises:
        InfeasibleError: when a budget is overspent even so.
    """
    noise = np.array(noise, dtype=float)
    rows: list[CertificateRow] = []
    warnings: list[str] = []
    for group in range(len(noise)):
        found = _certified(problem, group, ratios[group], noise[group], opinions)
        spent = _guaranteed(found)
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
            found = _certified(problem, group, ratios[group], noise[group], opinions)
            _must_keep(problem, group, found)
        rows += found
    return CertifiedNoise(noise, tuple(rows), tuple(warnings))


def history_of(problem: Problem, ratio: float, noise: float) -> History:
    """What a client of a group takes part in."""
    return History.repeated(Release(float(noise), float(ratio), problem.sampling), problem.rounds)


def _certified(
    problem: Problem, group: int, ratio: float, noise: float, opinions: tuple[str, ...]
) -> list[CertificateRow]:
    return certify(
        history_of(problem, ratio, noise),
        group=problem.names[group],
        delta=problem.deltas[group],
        relation=problem.relation,
        accountants=(GUARANTEE, *(name for name in opinions if name != GUARANTEE)),
        unit=problem.unit,
    )


def _guaranteed(rows: list[CertificateRow]) -> float:
    return max((row.epsilon_upper for row in rows if row.guarantee), default=float("inf"))


def _must_keep(problem: Problem, group: int, rows: list[CertificateRow]) -> None:
    spent = _guaranteed(rows)
    if spent > problem.epsilons[group]:
        raise InfeasibleError(
            f"groups.{problem.names[group]}.epsilon: {problem.epsilons[group]:g} is overspent: "
            f"{GUARANTEE} certifies only {spent:.6g} (delta {problem.deltas[group]:.3g}, "
            f"{problem.law}, {problem.relation})"
        )
