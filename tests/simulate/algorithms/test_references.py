"""Each method against a reference of its own, and without the step that defines it.

The references are plain loops over clients with torch.nn on a few digits, or rounds
computed by hand in the world of two parameters. A mutation changes the step that
defines a method: its noise, clipping, weights, local rule, server or personalisation.
It is caught when the reference, or the check of the composition, fails on it; no
accuracy is looked at.
"""

from collections import Counter

import pytest

from privplan.errors import InputError
from simulate.algorithms.registry import ALGORITHMS
from tests.simulate.algorithms.references import CASES

QUICK = {"DP-FedPGN", "GDPFed+", "DP-FedSAM", "P-FedSAM", "pFedHN", "PFA", "DPFedAvg"}
"""Methods whose mutations are quick and stand for those of the others."""
LONG = {"DP-FedAvg-FT", "DP-FedSAM-FT", "HyperFL-LPM", "Local-only"}
"""Methods whose quick tests share most of their code with others."""


def test_every_method_has_a_reference_and_three_mutations():
    counts: Counter[str] = Counter()
    for case in CASES:
        counts[case.name] += len(case.mutations)
    assert {name: counts[name] for name in ALGORITHMS if counts[name] < 3} == {}


@pytest.mark.parametrize("name", ["CENTAUR", "PPSGD"])
def test_a_method_of_both_kinds_has_three_mutations_for_records(name):
    [case] = [
        case for case in CASES if case.name == name and case.plan.unit == "record"
    ]
    assert len(case.mutations) >= 3


def references():
    """Each case, slow where others share its code."""
    for case in CASES:
        marks = pytest.mark.slow if case.name in LONG else ()
        yield pytest.param(case, marks=marks, id=case.name)


@pytest.mark.parametrize("case", list(references()))
def test_it_equals_its_reference(case):
    case.check(case.build())


def mutations():
    """Each mutation of each case, slow unless the method stands for others."""
    for case in CASES:
        marks = () if case.name in QUICK else pytest.mark.slow
        for fault in case.mutations:
            yield pytest.param(case, fault, marks=marks, id=f"{case.name}, {fault}")


@pytest.mark.parametrize(("case", "fault"), list(mutations()))
def test_a_mutation_is_caught(case, fault):
    with pytest.raises((AssertionError, InputError)):
        case.check(case.mutations[fault](case.build()))
