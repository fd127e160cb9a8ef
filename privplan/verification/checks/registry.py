"""What is checked of a run: each check is one function with its own reason when it fails."""

from __future__ import annotations

from collections.abc import Callable

from privplan.verification.checks.check import Check, Run
from privplan.verification.checks.clipping import clipping
from privplan.verification.checks.integrity import groups, same_plan, unbroken
from privplan.verification.checks.noise import noise_drawn, noise_fresh, noise_planned, noise_shares
from privplan.verification.checks.rounds import rounds
from privplan.verification.checks.sampling import cohorts, participation, sampling
from privplan.verification.checks.sums import coordinates, sums
from privplan.verification.checks.weights import weights

CHECKS: tuple[Callable[[Run], Check], ...] = (
    same_plan,
    unbroken,
    groups,
    rounds,
    clipping,
    coordinates,
    noise_planned,
    noise_shares,
    noise_drawn,
    noise_fresh,
    sums,
    sampling,
    cohorts,
    participation,
    weights,
)
