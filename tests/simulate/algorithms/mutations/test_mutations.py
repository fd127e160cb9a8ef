"""Mutation testing of the whole catalogue: three mutations or more of each method are caught.

A mutation changes the step that defines a method: its noise, clipping, weights, local rule, server
or personalisation. It is caught when the method's reference, or the check of its composition, fails
on it; no accuracy is looked at. Mutations beside the references are counted too.
"""

from __future__ import annotations

from collections import Counter

import pytest

from privplan.errors import InputError
from simulate.algorithms.registry import ALGORITHMS
from tests.simulate.algorithms.mutations import (
    hypernetworks,
    personal_records,
    records,
    sparse,
    sums,
)
from tests.simulate.algorithms.references import CASES as REFERENCES
from tests.simulate.case import Case

CASES: tuple[Case, ...] = (
    *sums.CASES, *sparse.CASES, *records.CASES, *personal_records.CASES, *hypernetworks.CASES,
)  # fmt: skip
MUTATIONS = [(case, name) for case in CASES for name in case.mutations]
SURVIVORS: dict[str, str] = {}
"""Mutations that nothing catches, with the reason; none are known."""


def test_every_method_has_three_mutations() -> None:
    counts: Counter[str] = Counter()
    for case in (*REFERENCES, *CASES):
        counts[case.name] += len(case.mutations)
    assert {name: counts[name] for name in ALGORITHMS if counts[name] < 3} == {}


LONG = ("DP-FedPGN-LS", "DP-FedAvg-FT", "DP-FedSAM-FT", "HyperFL", "Local-only")
"""Methods beside them share most of their code."""


def test_personalised_methods_have_three_mutations_at_the_level_of_records() -> None:
    for name in ("CENTAUR", "PPSGD"):
        [case] = [one for one in CASES if one.name == name and one.plan.unit == "record"]
        assert len(case.mutations) >= 3


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if case.name in LONG else (), id=case.name)
        for case in CASES
    ],
)
def test_the_method_passes_its_reference(case: Case) -> None:
    case.check(case.build())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "name"), MUTATIONS, ids=[f"{case.name}, {name}" for case, name in MUTATIONS]
)
def test_a_mutation_is_caught(case: Case, name: str) -> None:
    if f"{case.name}, {name}" in SURVIVORS:
        pytest.skip(SURVIVORS[f"{case.name}, {name}"])
    with pytest.raises((AssertionError, InputError)):
        case.check(case.mutations[name](case.build()))
