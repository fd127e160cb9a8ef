"""The epsilon that a client-level setting gives, by sampling law and relation."""

from __future__ import annotations

from collections.abc import Iterator

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.calibrate import noise_multiplier
from privplan.accounting.release import History, Relation, Release, SamplingLaw

LAWS: dict[str, tuple[SamplingLaw, Relation]] = {
    "Poisson sampling, add/remove": (SamplingLaw.POISSON, Relation.ADD_REMOVE),
    "cohorts of fixed size, add/remove": (SamplingLaw.FIXED_SIZE, Relation.ADD_REMOVE),
    "Poisson sampling, replace one": (SamplingLaw.POISSON, Relation.REPLACE_ONE),
    "cohorts of fixed size, replace one": (
        SamplingLaw.FIXED_SIZE,
        Relation.REPLACE_ONE,
    ),
}
"""Law and relation by row."""


def epsilons(
    noise: float, ratio: float, rounds: int, delta: float
) -> Iterator[tuple[str, Interval]]:
    """Lower and upper bound on epsilon by PLD, one row per law and relation."""
    for row, (law, relation) in LAWS.items():
        history = History.repeated(Release(noise, ratio, law), rounds)
        yield row, accountant("pld").epsilon(history, delta, relation)


def noises(
    epsilon: float, ratio: float, rounds: int, delta: float
) -> Iterator[tuple[str, float]]:
    """Noise multipliers that a budget needs by PLD; a row per law under add/remove."""
    for row, (law, relation) in LAWS.items():
        if relation == "add_remove":
            noise = noise_multiplier(
                epsilon, delta, sampling_ratio=ratio, rounds=rounds, sampling=law
            )
            yield f"noise multiplier needed, {row}", noise
