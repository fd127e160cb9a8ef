"""Estimators of the constants of planning, as functions of updates and gradients.

Each returns an estimate with its standard error. The estimators are unbiased for
independent clients, or their docstring states the direction of the bias. They provide
no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Gradient = Callable[[Tensor], Tensor]
"""Takes parameters [d] to a gradient [d]."""

POWER_STEPS = 16  # of the power iteration; the estimate approaches L from below


@dataclass(frozen=True)
class Estimate:
    """A measured number with its standard error."""

    value: float
    error: float


def norms(updates: Tensor) -> Floats:
    """L2 norms [K] of updates [K, d]."""
    lengths = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64)
    return np.asarray(lengths.cpu())


def root_mean_square(values: Floats) -> Estimate:
    """S = sqrt(mean x^2); error sd(x^2) / (2 s sqrt(K)) by the delta method."""
    squares = values**2
    mean = float(squares.mean())
    error = float(squares.std(ddof=1)) / math.sqrt(len(squares))
    return Estimate(math.sqrt(mean), error / (2 * math.sqrt(mean)) if mean else 0.0)


def mean_of(values: Floats) -> Estimate:
    """The mean of independent values [K], with sd / sqrt(K); K at least 2."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(float(values.mean()), error)


def heterogeneity(
    updates: Tensor, groups: NDArray[np.int64], shares: Floats
) -> Estimate:
    """h^2 = sum_m p_m |U_m - U|^2, U_m the mean update of group m and U = sum p_m U_m.

    Only products of the updates of two different clients enter,

        h^2 = sum_m p_m A_mm - sum_ml p_m p_l A_ml,
        A_ml = mean of <u_i, u_j> over i in m, j in l, i != j,

    so the scatter of clients inside a group does not add to it: the estimate is
    unbiased, and negative for about half of all cohorts when the groups are alike. The
    error is a jackknife's over clients.
    """
    wide = updates.to(torch.float64)
    gram = (wide @ wide.T).cpu().numpy()
    # [K, M]: whether a client is in a group.
    member = (groups[:, None] == np.arange(len(shares))).astype(float)
    # Sums of <u_i, u_j> over the pairs of two groups [M, M], and of |u_i|^2 [M].
    sums = member.T @ gram @ member
    squares = member.T @ np.diag(gram)
    value = _between(sums, squares, member.sum(0), shares)
    without_client = []
    for client, group in enumerate(groups):
        # Row and column of the client's group lose its products with each group; its
        # square has then been taken off twice.
        products = gram[client] @ member
        sums_left = sums.copy()
        sums_left[group] -= products
        sums_left[:, group] -= products
        sums_left[group, group] += gram[client, client]
        squares_left = squares - gram[client, client] * member[client]
        counts_left = member.sum(0) - member[client]
        without_client.append(_between(sums_left, squares_left, counts_left, shares))
    # (K - 1) / K sum_k (h_k - mean h)^2 with h_k the estimate without client k.
    variance = float(np.var(without_client)) * (len(groups) - 1)
    return Estimate(value, math.sqrt(variance))


def _between(sums: Floats, squares: Floats, counts: Floats, shares: Floats) -> float:
    """h^2 of sums of products [M, M] and squares [M] of ``counts`` clients [M]."""
    pairs = np.outer(counts, counts) - np.diag(counts)
    products = (sums - np.diag(squares)) / pairs
    return float(shares @ np.diag(products) - shares @ products @ shares)


def local_variance(first: Tensor, second: Tensor) -> Estimate:
    """zeta^2 = E |g - E g|^2 / d, variance per coordinate of a mini-batch gradient.

    Half the mean squared difference of two independent mini-batches of each client,
    over d.
    """
    squares = norms(first - second) ** 2 / (2 * first.shape[1])
    return mean_of(squares)


def dissimilarity(gradients: Tensor) -> Estimate:
    """kappa^2 = E |grad f_i - grad F|^2, with F the mean over the clients.

    The sample variance sum_i |g_i - mean|^2 / (K - 1) of the clients' whole gradients.
    """
    clients = len(gradients)
    squares = norms(gradients - gradients.mean(0)) ** 2 * clients / (clients - 1)
    return mean_of(squares)


def largest_curvature(
    gradient: Gradient, theta: Tensor, start: Tensor, radius: float
) -> float:
    """L at theta: the largest |eigenvalue| of the Hessian, by power iteration.

    The Hessian times a unit vector v is (grad(theta + radius v) - grad(theta - radius
    v)) over 2 radius, exact for a quadratic.
    """
    direction = start / start.norm()
    eigenvalue = 0.0
    for _ in range(POWER_STEPS):
        product = _hessian_product(gradient, theta, direction, radius)
        eigenvalue = float(product.norm())
        if eigenvalue == 0:
            break
        direction = product / eigenvalue
    return eigenvalue


def mean_curvature(
    gradient: Gradient, theta: Tensor, directions: Sequence[Tensor], radius: float
) -> Estimate:
    """tr(H) / d, the Hessian's mean eigenvalue: mean of v' H v / |v|^2 over directions.

    Unbiased for isotropic directions (M. Hutchinson, 1990). It determines the effect of
    isotropic noise of variance s^2 per coordinate:

        E f(theta + noise) = f(theta) + d s^2 tr(H) / (2 d) + ...
    """
    curvatures = []
    for direction in directions:
        unit = direction / direction.norm()
        curvatures.append(float(unit @ _hessian_product(gradient, theta, unit, radius)))
    return mean_of(np.array(curvatures))


def _hessian_product(
    gradient: Gradient, theta: Tensor, unit: Tensor, radius: float
) -> Tensor:
    """The Hessian at ``theta`` times a unit vector, by a central difference."""
    step = radius * unit
    return (gradient(theta + step) - gradient(theta - step)) / (2 * radius)
