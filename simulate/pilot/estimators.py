"""Estimators of the constants of planning, as functions of updates and gradients.

Each returns an estimate with its standard error. The estimators are unbiased for independent
clients, or their docstring states the direction of the bias. They provide no privacy.
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
"""Parameters [d] to a gradient [d]."""

POWER_STEPS = 16


@dataclass(frozen=True)
class Estimate:
    """A measured number.

    Attributes:
        value: the estimate.
        error: its standard error.
    """

    value: float
    error: float


def norms(updates: Tensor) -> Floats:
    """L2 norms [K] of updates [K, d]."""
    lengths: Floats = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64).cpu().numpy()
    return lengths


def root_mean_square(values: Floats) -> Estimate:
    """S = sqrt(mean x^2); error sd(x^2) / (2 s sqrt(K)) by the delta method.

    Args:
        values: norms of updates [K], K at least 2.
    """
    squares = values**2
    mean = float(squares.mean())
    error = float(squares.std(ddof=1)) / math.sqrt(len(squares))
    return Estimate(math.sqrt(mean), error / (2 * math.sqrt(mean)) if mean else 0.0)


def mean_of(values: Floats) -> Estimate:
    """The mean of independent values [K], with sd / sqrt(K); K at least 2."""
    return Estimate(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)))


def heterogeneity(updates: Tensor, groups: NDArray[np.int64], shares: Floats) -> Estimate:
    """h^2 = sum_m p_m |U_m - U|^2, U_m the mean update of group m and U = sum p_m U_m.

    Only products of the updates of two different clients enter,

        h^2 = sum_m p_m A_mm - sum_ml p_m p_l A_ml,
        A_ml = mean of <u_i, u_j> over i in m, j in l, i != j,

    so the scatter of clients inside a group does not add to it: the estimate is unbiased, and
    negative for about half of all cohorts when the groups are alike. The error is a jackknife's
    over clients.

    Args:
        updates: updates of clients [K, d].
        groups: group of each client [K], 0 to groups - 1, at least three of each group.
        shares: p_m, shape (groups,), summing to 1.
    """
    wide = updates.to(torch.float64)
    gram = (wide @ wide.T).cpu().numpy()
    member = (groups[:, None] == np.arange(len(shares))).astype(float)
    sums, own = member.T @ gram @ member, member.T @ np.diag(gram)
    value = _between(sums, own, member.sum(0), shares)
    jackknife = []
    for i, group in enumerate(groups):
        across = gram[i] @ member
        fewer = sums.copy()
        fewer[group] -= across
        fewer[:, group] -= across
        fewer[group, group] += gram[i, i]
        own_left = own - gram[i, i] * member[i]
        jackknife.append(_between(fewer, own_left, member.sum(0) - member[i], shares))
    spread = float(np.var(jackknife)) * (len(groups) - 1)
    return Estimate(value, math.sqrt(spread))


def _between(sums: Floats, own: Floats, counts: Floats, shares: Floats) -> float:
    pairs = np.outer(counts, counts) - np.diag(counts)
    products = (sums - np.diag(own)) / pairs
    return float(shares @ np.diag(products) - shares @ products @ shares)


def coherence(updates: Tensor) -> Estimate:
    """c^2 = |E u|^2 / (E |u|)^2, the alignment of updates, 1 for equal directions.

    The numerator is the mean of <u_i, u_j> over pairs of different clients, so the clients'
    scatter does not add to it. The error is the jackknife's over clients. Clipping a random share
    of the length of updates changes their mean by c times the mean removed length.

    Args:
        updates: updates of clients [K, d], K at least 3.
    """
    wide = updates.to(torch.float64)
    gram, lengths = (wide @ wide.T).cpu().numpy(), norms(updates)
    total, own, count = gram.sum(), np.diag(gram), len(lengths)

    def ratio(products: Floats, length: Floats, size: int) -> Floats:
        return np.asarray(products / (size * (size - 1)) / (length / size) ** 2)

    value = ratio(total - own.sum(), lengths.sum(), count)
    fewer = total - 2 * gram.sum(0) + own - (own.sum() - own)
    jackknife = ratio(fewer, lengths.sum() - lengths, count - 1)
    return Estimate(float(value), math.sqrt(float(jackknife.var()) * (count - 1)))


def local_variance(first: Tensor, second: Tensor) -> Estimate:
    """zeta^2 = E |g - E g|^2 / d, the variance per coordinate of a client's mini-batch gradient.

    Half the mean squared difference of two independent mini-batches of each client, over d.

    Args:
        first: gradients of one mini-batch per client [K, d], all at the same parameters.
        second: gradients of another mini-batch per client [K, d].
    """
    squares = norms(first - second) ** 2 / (2 * first.shape[1])
    return mean_of(squares)


def dissimilarity(gradients: Tensor) -> Estimate:
    """kappa^2 = E |grad f_i - grad F|^2, with F the mean over the clients.

    The sample variance sum_i |g_i - mean|^2 / (K - 1) of the clients' whole gradients.

    Args:
        gradients: gradients over all records of each client [K, d], K at least 2.
    """
    clients = len(gradients)
    squares = norms(gradients - gradients.mean(0)) ** 2 * clients / (clients - 1)
    return mean_of(squares)


def largest_curvature(gradient: Gradient, theta: Tensor, start: Tensor, radius: float) -> float:
    """L at theta: the largest |eigenvalue| of the Hessian, by power iteration from below.

    The Hessian times a unit vector v is (grad(theta + radius v) - grad(theta - radius v)) over
    2 radius, exact for a quadratic.

    Args:
        gradient: gradient of the objective.
        theta: parameters [d].
        start: any direction [d] that is not zero.
        radius: length of the step of the difference.
    """
    direction, eigenvalue = start / start.norm(), 0.0
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
    """tr(H) / d, the mean eigenvalue of the Hessian: mean of v' H v / |v|^2 over directions.

    Unbiased for isotropic directions (M. Hutchinson, 1990). It determines the effect of isotropic
    noise of variance s^2 per coordinate: E f(theta + noise) = f(theta) + d s^2 tr(H) / (2 d) + ...

    Args:
        gradient: gradient of the objective.
        theta: parameters [d].
        directions: at least two random directions [d], isotropic.
        radius: length of the step of the difference.
    """
    curvatures = []
    for direction in directions:
        unit = direction / direction.norm()
        curvatures.append(float(unit @ _hessian_product(gradient, theta, unit, radius)))
    return mean_of(np.array(curvatures))


def _hessian_product(gradient: Gradient, theta: Tensor, unit: Tensor, radius: float) -> Tensor:
    step = radius * unit
    return (gradient(theta + step) - gradient(theta - step)) / (2 * radius)


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates of one number."""
    count = len(estimates)
    error = math.sqrt(sum(estimate.error**2 for estimate in estimates)) / count
    return Estimate(sum(estimate.value for estimate in estimates) / count, error)
