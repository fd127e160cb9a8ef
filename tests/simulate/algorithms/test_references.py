"""Each method against a reference of its own, and with the step that defines it taken away.

The references are plain loops over clients with torch.nn on a few digits, or rounds computed by
hand in the world of two parameters. A mutation changes the step that defines a method: its noise,
clipping, weights, local rule, server or personalisation. It is caught when the reference, or the
check of the composition, fails on it; no accuracy is looked at.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from privplan.errors import InputError
from simulate.aggregators import project
from simulate.algorithms.registry import ALGORITHMS
from simulate.server import smoothed
from tests.simulate.algorithms.references import CASES

FAULTS = [(case, fault) for case in CASES for fault in case.mutations]
QUICK = {"DP-FedPGN", "GDPFed+", "DP-FedSAM", "P-FedSAM", "PPSGD", "pFedHN", "PFA", "DPFedAvg"}
"""Methods whose mutations are quick and stand for those of the others."""
LONG = {"DP-FedAvg-FT", "DP-FedSAM-FT", "HyperFL-LPM", "Local-only"}
"""Methods whose quick tests share most of their code with others."""


def test_every_method_has_a_reference_and_three_mutations():
    counts: Counter[str] = Counter()
    for case in CASES:
        counts[case.name] += len(case.mutations)
    assert {name: counts[name] for name in ALGORITHMS if counts[name] < 3} == {}
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
def test_it_equals_its_reference(case):
    case.check(case.build())


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        pytest.param(
            case,
            fault,
            marks=() if case.name in QUICK else pytest.mark.slow,
            id=f"{case.name}, {fault}",
        )
        for case, fault in FAULTS
    ],
)
def test_a_mutation_is_caught(case, fault):
    with pytest.raises((AssertionError, InputError)):
        case.check(case.mutations[fault](case.build()))


def dense(vector, strength):
    """The smoothed vector from the matrix of the system, in double precision."""
    size = vector.numel()
    neighbour = torch.roll(torch.eye(size, dtype=torch.float64), 1, 0)
    laplace = neighbour + neighbour.T - 2 * torch.eye(size, dtype=torch.float64)
    system = torch.eye(size, dtype=torch.float64) - strength * laplace
    return torch.linalg.solve(system, vector.double())


@pytest.mark.parametrize("size", [1, 2, 3, 10, 31])
@pytest.mark.parametrize("strength", [0.0, 0.01, 1.0, 50.0])
def test_smoothing_against_a_dense_solve(size, strength):
    vector = torch.from_numpy(np.random.default_rng(size).normal(size=size))
    found = smoothed(vector, strength)
    torch.testing.assert_close(found, dense(vector, strength), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.sum(), vector.sum(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_projection_is_idempotent_and_leaves_a_right_angle(rows):
    draw = torch.Generator().manual_seed(rows)
    vector = torch.randn(50, generator=draw, dtype=torch.float64)
    basis = torch.randn(rows, 50, generator=draw, dtype=torch.float64)
    basis = torch.cat([basis, 2 * basis[:1], torch.zeros(2, 50, dtype=torch.float64)])
    along = project(vector, basis)
    torch.testing.assert_close(basis @ (vector - along), torch.zeros(len(basis)).double())
    torch.testing.assert_close(project(along, basis), along)
    assert bool(along.norm() > 0) is bool(rows)
