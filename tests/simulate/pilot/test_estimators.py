"""Estimators against a quadratic whose constants are known in closed form.

Client i minimises (theta - c_i)' A (theta - c_i) / 2 with A diagonal: its gradient is
A (theta - c_i), the largest curvature is max A, the mean one tr A / d, and the gradients of
clients with scattered c_i scatter by A times that. Bounds are five standard errors wide.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from simulate.proxy import pilot as estimators
from simulate.proxy.pilot import Estimate

CURVATURES = torch.tensor([4.0, 1.0, 0.5, 0.25, 0.25], dtype=torch.float64)
SIZE = len(CURVATURES)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def near(found: Estimate, truth: float) -> bool:
    return found.error > 0 and abs(found.value - truth) <= 5 * found.error


def quadratic(theta: Tensor) -> Tensor:
    return CURVATURES * (theta - 1)


def test_largest_curvature_of_a_quadratic_whatever_the_step():
    for radius in (1e-3, 10.0):
        found = estimators.largest_curvature(quadratic, torch.zeros(SIZE), drawn(SIZE), radius)
        assert found == pytest.approx(4.0, rel=1e-6)


def test_mean_curvature_is_the_trace_over_the_dimension():
    directions = list(drawn(400, SIZE))
    found = estimators.mean_curvature(quadratic, torch.zeros(SIZE), directions, 0.5)
    assert near(found, float(CURVATURES.sum()) / SIZE)
    along = [torch.eye(SIZE, dtype=torch.float64)[0]] * 2
    assert estimators.mean_curvature(quadratic, torch.zeros(SIZE), along, 0.5).value == (
        pytest.approx(4.0)
    )


def test_local_variance_of_known_gradient_noise():
    zeta, clients = 0.3, 2000
    mean = quadratic(drawn(clients, SIZE, seed=1))
    pair = [mean + zeta * drawn(clients, SIZE, seed=seed) for seed in (2, 3)]
    found = estimators.local_variance(*pair)
    assert near(found, zeta**2)
    assert found.error < 0.05 * zeta**2


def test_dissimilarity_of_scattered_optima():
    scatter = 0.7
    optima = scatter * drawn(2000, SIZE)
    found = estimators.dissimilarity(quadratic(torch.ones(SIZE) - optima))
    assert near(found, scatter**2 * float((CURVATURES**2).sum()))


def grouped(means: Tensor, per_group: int, seed: int) -> tuple[Tensor, np.ndarray]:
    owners = np.repeat(np.arange(len(means)), per_group)
    return means[owners] + drawn(len(owners), means.shape[1], seed=seed), owners


def test_heterogeneity_does_not_count_the_scatter_of_clients():
    """h^2 by the formula, far below the squared scatter d of single clients."""
    means = 0.2 * drawn(3, 40, seed=5)
    shares = np.array([0.5, 0.3, 0.2])
    weighted = torch.tensor(shares) @ means
    truth = float((torch.tensor(shares) * ((means - weighted) ** 2).sum(1)).sum())
    found = estimators.heterogeneity(*grouped(means, 40, 6), shares)
    assert near(found, truth)
    many = [estimators.heterogeneity(*grouped(means, 10, seed), shares) for seed in range(200)]
    average = estimators.mean_of(np.array([one.value for one in many]))
    assert near(average, truth)
    # the jackknife's error agrees with the scatter of 200 repetitions
    spread = average.error * math.sqrt(200)
    typical = math.sqrt(float(np.mean([one.error**2 for one in many])))
    assert 0.8 * spread < typical < 1.4 * spread
