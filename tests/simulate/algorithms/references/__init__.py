"""References of the methods of the catalogue, by family."""

from __future__ import annotations

from tests.simulate.algorithms.references import (
    alone,
    groups,
    hypernetworks,
    individual,
    joint,
    own,
    pgn,
)
from tests.simulate.case import Case

CASES: tuple[Case, ...] = (
    *alone.CASES, *joint.CASES, *pgn.CASES, *groups.CASES, *individual.CASES, *own.CASES,
    *hypernetworks.CASES,
)  # fmt: skip
