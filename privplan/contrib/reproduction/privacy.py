"""The epsilon that a paper's client-level setting gives, by sampling law and relation."""

from __future__ import annotations

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import noise_multiplier
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.contrib.reproduction.claims import Cell

LAWS: dict[str, tuple[SamplingLaw, Relation]] = {
    "Poisson sampling, add/remove": (SamplingLaw.POISSON, Relation.ADD_REMOVE),
    "cohorts of fixed size, add/remove": (SamplingLaw.FIXED_SIZE, Relation.ADD_REMOVE),
    "Poisson sampling, replace one": (SamplingLaw.POISSON, Relation.REPLACE_ONE),
    "cohorts of fixed size, replace one": (SamplingLaw.FIXED_SIZE, Relation.REPLACE_ONE),
}
"""Law and relation by row."""


def epsilons(
    column: str,
    noise: float,
    ratio: float,
    rounds: int,
    delta: float,
    printed: dict[str, float] | None = None,
) -> list[Cell]:
    """Upper bounds on epsilon by PLD, one row per law and relation."""
    pld, cells = accountant("pld"), []
    for row, (law, relation) in LAWS.items():
        history = History.repeated(Release(noise, ratio, law), rounds)
        found = pld.epsilon(history, delta, relation).upper
        known = (printed or {}).get(row)
        cells.append(Cell(row=row, column=column, published=known, values=(found,)))
    return cells


def noises(column: str, epsilon: float, ratio: float, rounds: int, delta: float) -> list[Cell]:
    """Noise multipliers that a budget needs by PLD, one row per law under add/remove."""
    return [
        Cell(
            row=row,
            column=column,
            values=(
                noise_multiplier(
                    epsilon,
                    delta,
                    sampling_ratio=ratio,
                    rounds=rounds,
                    sampling=law,
                    relation=relation,
                    accountant="pld",
                ),
            ),
        )
        for row, (law, relation) in LAWS.items()
        if relation == "add_remove"
    ]
