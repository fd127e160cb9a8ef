"""References of the methods of the catalogue, and mutations that they catch, by family."""

from __future__ import annotations

from tests.simulate.algorithms.references import (
    groups,
    hypernetworks,
    individual,
    joint,
    own,
    personal_records,
    pgn,
    records,
    sparse,
    sums,
)
from tests.simulate.case import Case

CASES: tuple[Case, ...] = (
    *joint.CASES, *pgn.CASES, *groups.CASES, *individual.CASES, *own.CASES, *hypernetworks.CASES,
    *sums.CASES, *sparse.CASES, *records.CASES, *personal_records.CASES,
)  # fmt: skip
